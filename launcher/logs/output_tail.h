// The end of a stream, kept for the failure report.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

constexpr size_t kTailBytes = 16 << 10;

class OutputTail {
 public:
  void Append(absl::string_view bytes);
  // At most the last kTailBytes of all that was appended; begins with a whole line when something was cut
  // off.
  std::string Get() const;

 private:
  std::string kept_;  // at most twice what is wanted, so that most appends move nothing
  bool cut_ = false;
};

// The same of a file; empty when it cannot be read, or is no plain file.
std::string ReadFileTail(const std::string& path);

}  // namespace ddprun
