// Keeps the last bytes of a stream for the failure report.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

constexpr size_t kTailBytes = 16 << 10;

class OutputTail {
 public:
  void Append(absl::string_view bytes);
  // Returns at most the last kTailBytes bytes that were appended. If earlier bytes were dropped, the result
  // begins with a whole line, unless the last line alone exceeds kTailBytes.
  std::string Get() const;

 private:
  std::string kept_;  // at most 2 * kTailBytes, so that most appends move no bytes
  bool cut_ = false;  // bytes before kept_ were dropped
};

// Returns the tail of a file; empty if it cannot be read or is not a regular file.
std::string ReadFileTail(const std::string& path);

}  // namespace ddprun
