#include "launcher/logs/output_tail.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "os/files.h"

namespace ddprun {

void OutputTail::Append(absl::string_view bytes) {
  if (bytes.size() >= kTailBytes) {
    cut_ = cut_ || !kept_.empty() || bytes.size() > kTailBytes;
    bytes.remove_prefix(bytes.size() - kTailBytes);
    kept_.clear();
  }
  kept_.append(bytes.data(), bytes.size());
  if (kept_.size() <= 2 * kTailBytes) return;
  kept_.erase(0, kept_.size() - kTailBytes);
  cut_ = true;
}

std::string OutputTail::Get() const {
  const size_t begin = kept_.size() - std::min(kept_.size(), kTailBytes);
  if (begin == 0 && !cut_) return kept_;
  // Skip the first line, which is incomplete, unless the result would be empty.
  const size_t newline = kept_.find('\n', begin);
  return newline == std::string::npos || newline + 1 == kept_.size() ? kept_.substr(begin)
                                                                     : kept_.substr(newline + 1);
}

std::string ReadFileTail(const std::string& path) {
  const std::optional<PlainFile> file = OpenPlainFile(path);
  if (!file) return "";
  std::string bytes(kTailBytes + 1, '\0');  // One extra byte shows whether earlier bytes are dropped.
  const off_t begin = std::max<off_t>(file->size - static_cast<off_t>(bytes.size()), 0);
  const ssize_t n = pread(file->fd.get(), bytes.data(), bytes.size(), begin);
  OutputTail tail;
  tail.Append(absl::string_view(bytes).substr(0, static_cast<size_t>(std::max<ssize_t>(n, 0))));
  return tail.Get();
}

}  // namespace ddprun
