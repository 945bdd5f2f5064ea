#include "launcher/logs/lines.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "launcher/config/safe_substitute.h"

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
  // Most streams contain no "\r", so check once instead of for each line.
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
    // If this byte is not a line end, the line is longer than kMaxLine, and its rest becomes a new line.
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

std::string FormatPrefix(absl::string_view prefix_template, const LineOrigin& origin) {
  constexpr absl::string_view kDefault = "[${role_name}${local_rank}]:";
  return SafeSubstitute(prefix_template.empty() ? kDefault : prefix_template,
                        {{"role_name", origin.role},
                         {"local_rank", absl::StrCat(origin.local_rank.value())},
                         {"rank", absl::StrCat(origin.rank.value())},
                         {"hostname", origin.hostname}});
}

size_t EndOfLastLine(absl::string_view bytes) {
  const void* const newline = memrchr(bytes.data(), '\n', bytes.size());
  const size_t end = newline == nullptr ? 0 : static_cast<const char*>(newline) - bytes.data() + 1;
  const absl::string_view rest = bytes.substr(end);
  if (rest.size() < 2) return end;
  const void* const return_ = memrchr(rest.data(), '\r', rest.size() - 1);
  return return_ == nullptr ? end : static_cast<const char*>(return_) - bytes.data() + 1;
}

absl::string_view LineHolder::Pass(absl::string_view bytes, std::string& held) {
  held.clear();
  // If a "\r" was held back and no "\n" follows, the "\r" ended a line.
  if (!partial_.empty() && partial_.back() == '\r' && !bytes.empty() && bytes[0] != '\n') held.swap(partial_);
  size_t end = EndOfLastLine(bytes);
  if (partial_.size() + bytes.size() - end > kMaxLine) end = bytes.size();
  if (end > 0 && !partial_.empty()) held.swap(partial_);
  partial_.append(bytes.data() + end, bytes.size() - end);
  return bytes.substr(0, end);
}

void LineHolder::Feed(absl::string_view bytes, std::string& lines) {
  std::string held;
  const absl::string_view whole = Pass(bytes, held);
  lines.append(held).append(whole.data(), whole.size());
}

void LineHolder::Finish(std::string& lines) {
  lines += partial_;
  partial_.clear();
}

}  // namespace ddprun
