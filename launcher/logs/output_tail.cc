#include "launcher/logs/output_tail.h"

#include <algorithm>
#include <fstream>
#include <ios>
#include <vector>

namespace ddprun {

void OutputTail::Append(absl::string_view bytes) {
  kept_.append(bytes.data(), bytes.size());
  if (kept_.size() <= 2 * kTailBytes) return;
  kept_.erase(0, kept_.size() - kTailBytes);
  cut_ = true;
}

std::string OutputTail::Get() const {
  const size_t begin = kept_.size() - std::min(kept_.size(), kTailBytes);
  if (begin == 0 && !cut_) return kept_;
  // Where a line was cut, begin with the next one; a single line longer than the tail is shown as it is.
  const size_t newline = kept_.find('\n', begin);
  return newline == std::string::npos || newline + 1 == kept_.size() ? kept_.substr(begin)
                                                                     : kept_.substr(newline + 1);
}

std::string ReadFileTail(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  constexpr std::streamoff kWanted = kTailBytes + 1;  // one more shows whether something is cut off
  const std::streamoff size = file.tellg();
  std::vector<char> bytes(static_cast<size_t>(std::min(size, kWanted)));
  file.seekg(size - static_cast<std::streamoff>(bytes.size()));
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  OutputTail tail;
  tail.Append(absl::string_view(bytes.data(), static_cast<size_t>(file.gcount())));
  return tail.Get();
}

}  // namespace ddprun
