// Writes JSON exactly like Python's json.dumps, with the separators ", " and ": " and only ASCII characters.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Quotes and escapes `text`. Bytes that are not valid UTF-8 become U+FFFD.
std::string PythonString(absl::string_view text);
// Formats `number` like Python's repr(): 2.5, 3.0, 1e-05. Infinity becomes 1e999, which Python reads as
// infinity. Python's own notation for infinity is not valid JSON. NaN becomes 0.0, because Boost.JSON parses
// 0e999 as NaN.
std::string PythonFloat(double number);
std::string PythonDumps(const boost::json::value& value);

}  // namespace ddprun
