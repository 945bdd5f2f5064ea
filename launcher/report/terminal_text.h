// Text of unknown origin made fit for a terminal: no control characters, no line wider than asked.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// One line as a terminal would leave it: of what is separated by carriage returns the last that is not empty,
// without escape sequences (colours), tabs as blanks to the next multiple of eight, other control characters
// dropped, bytes that are no UTF-8 as '?'.
std::string CleanLine(absl::string_view line);

// CleanLine of each line of `text`, without empty lines at both ends.
std::vector<std::string> CleanLines(absl::string_view text);

// `line` in pieces of at most `width` letters (code points), broken at blanks where possible. At least one
// piece.
//   REQUIRES: `line` comes from CleanLine; width > 0.
std::vector<std::string> Wrap(absl::string_view line, size_t width);

}  // namespace ddprun
