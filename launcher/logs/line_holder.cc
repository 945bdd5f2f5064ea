#include "launcher/logs/line_holder.h"

#include <cstring>

namespace ddprun {
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
  // The "\r" that was the last byte.
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
