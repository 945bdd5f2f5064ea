// JSON letter by letter as Python's json.dumps writes it: ", " and ": " between things, ASCII only.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// `text` in quotes. What is no UTF-8 becomes U+FFFD.
std::string PythonString(absl::string_view text);
// As Python's repr() of a float: 2.5, 3.0, 1e-05. One that is infinite as 1e999, which Python reads as such
// and is JSON, unlike its own Infinity; what is no number, as which Boost.JSON reads 0e999, as 0.0.
std::string PythonFloat(double number);
std::string PythonDumps(const boost::json::value& value);

}  // namespace ddprun
