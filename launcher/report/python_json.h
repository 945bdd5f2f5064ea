// JSON exactly as Python's json.dumps writes it: separators ", " and ": ", ASCII only.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Quotes and escapes `text`. Bytes that are not UTF-8 become U+FFFD.
std::string PythonString(absl::string_view text);
// Formats `number` like Python's repr(): 2.5, 3.0, 1e-05. Infinity becomes 1e999, which Python reads as
// infinity and which, unlike Python's own Infinity, is valid JSON. NaN, which Boost.JSON returns for 0e999,
// becomes 0.0.
std::string PythonFloat(double number);
std::string PythonDumps(const boost::json::value& value);

}  // namespace ddprun
