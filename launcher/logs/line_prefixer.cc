#include "launcher/logs/line_prefixer.h"

#include <algorithm>
#include <cstring>

namespace ddprun {

size_t LinePrefixer::RestOfLine(absl::string_view bytes, bool has_returns) const {
  const size_t room = kMaxLine - partial_.size();
  const size_t searched = std::min(bytes.size(), room + 1);
  const void* newline = std::memchr(bytes.data(), '\n', searched);
  size_t size = newline == nullptr ? searched : static_cast<const char*>(newline) - bytes.data();
  if (has_returns) size = std::min(size, bytes.substr(0, size).find('\r'));
  if (size < searched) return size;
  return searched > room ? room : absl::string_view::npos;
}

void LinePrefixer::Feed(absl::string_view bytes, std::string& lines) {
  // Most streams have none: found out once, not for each line.
  const bool has_returns = bytes.find('\r') != absl::string_view::npos;
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t size = RestOfLine(bytes, has_returns);
    if (size == absl::string_view::npos) {
      partial_.append(bytes.data(), bytes.size());
      return;
    }
    lines += prefix_;
    if (!partial_.empty()) {
      lines += partial_;
      partial_.clear();
    }
    // What is cut goes on in the next line.
    const char end = bytes[size];
    const bool ended = end == '\n' || end == '\r';
    lines.append(bytes.data(), size);
    lines += '\n';
    bytes.remove_prefix(size + (ended ? 1 : 0));
    after_return_ = end == '\r';
  }
}

void LinePrefixer::Finish(std::string& lines) {
  if (partial_.empty()) return;
  lines += prefix_;
  lines += partial_;
  lines += '\n';
  partial_.clear();
}

}  // namespace ddprun
