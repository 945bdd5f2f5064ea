// Whole lines of a stream that arrives in pieces, byte for byte.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// A line ends with "\n", "\r\n" or "\r": each step of a progress bar is a line.
class LineHolder {
 public:
  // A line that is longer is not held back.
  static constexpr size_t kMaxLine = 4 << 20;

  // Appends the lines that `bytes` completes to `lines`, and holds the rest back.
  void Feed(absl::string_view bytes, std::string& lines);
  // Appends what was held back.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace ddprun
