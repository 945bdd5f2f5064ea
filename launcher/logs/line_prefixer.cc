#include "launcher/logs/line_prefixer.h"

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr size_t kMaxLine = 64 << 10;

}  // namespace

std::string LinePrefixer::Feed(absl::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const size_t room = kMaxLine - partial_.size();
    const size_t newline = bytes.substr(0, room).find('\n');
    if (newline == absl::string_view::npos && bytes.size() < room) {
      partial_.append(bytes.data(), bytes.size());
      break;
    }
    const bool whole = newline != absl::string_view::npos;
    const absl::string_view piece = bytes.substr(0, whole ? newline : room);
    absl::StrAppend(&lines, prefix_, partial_, piece, "\n");
    partial_.clear();
    bytes.remove_prefix(piece.size() + (whole ? 1 : 0));
  }
  return lines;
}

std::string LinePrefixer::Finish() {
  if (partial_.empty()) return "";
  const std::string line = absl::StrCat(prefix_, partial_, "\n");
  partial_.clear();
  return line;
}

}  // namespace ddprun
