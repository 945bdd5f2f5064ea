// Makes untrusted text safe for a terminal: no control characters, no line wider than a limit.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the line as a terminal would show it: the last non-empty part between carriage returns, without
// escape sequences (such as colors) and control characters. Tabs are expanded to the next multiple of eight,
// bytes that are not UTF-8 become '?', and trailing blanks are removed.
std::string CleanLine(absl::string_view line);

// Applies CleanLine to each line of `text`, and removes leading and trailing empty lines.
std::vector<std::string> CleanLines(absl::string_view text);

// Splits `line` into one or more pieces of at most `width` code points, at blanks where possible.
//   REQUIRES: `line` was returned by CleanLine; width > 0.
std::vector<std::string> Wrap(absl::string_view line, size_t width);

}  // namespace ddprun
