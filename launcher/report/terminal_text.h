// Makes untrusted text safe for a terminal: removes control characters and limits the width of lines.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the line as a terminal would show it. Only the last non-empty part between carriage returns is
// kept. Control characters and escape sequences, such as colors, are removed. Tabs are expanded to the next
// multiple of eight columns. Bytes that are not valid UTF-8 become '?'. Trailing blanks are removed.
std::string CleanLine(absl::string_view line);

// Applies CleanLine to each line of `text`, and removes leading and trailing empty lines.
std::vector<std::string> CleanLines(absl::string_view text);

// Splits `line` into one or more pieces of at most `width` code points, at blanks where possible.
//   REQUIRES: `line` was returned by CleanLine; width > 0.
std::vector<std::string> Wrap(absl::string_view line, size_t width);

}  // namespace ddprun
