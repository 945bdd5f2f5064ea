// Whole lines of a stream that arrives in pieces, byte for byte.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Behind the last end of a line in `bytes`; 0: there is none. A "\r" at the end may be half of a "\r\n".
size_t EndOfLastLine(absl::string_view bytes);

// A line ends with "\n", "\r\n" or "\r": each step of a progress bar is a line.
class LineHolder {
 public:
  // A line that is longer is not held back.
  static constexpr size_t kMaxLine = 4 << 20;

  // Holds back what follows the last line that `bytes` completes. The lines are `held`, which gets what was
  // held back before them, and then the result, a prefix of `bytes`.
  absl::string_view Pass(absl::string_view bytes, std::string& held);
  // The same, appended to `lines`.
  void Feed(absl::string_view bytes, std::string& lines);
  // Appends what was held back.
  void Finish(std::string& lines);

  bool holds() const { return !partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace ddprun
