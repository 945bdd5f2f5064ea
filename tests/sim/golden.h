// Golden traces: worked examples of the protocol, one scenario per file in tests/sim/golden. A file contains
// a comment, a script, a line "----", and the trace of the script. The trace omits heartbeats and the answers
// to them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/script.h"

namespace ddprun::sim {

struct Golden {
  std::string head;  // comment and script, verbatim
  Script script;
  std::string expected;  // the trace; each line ends with '\n'
};

//   Errors: kInvalidArgument: there is no line "----", or the script is invalid.
absl::StatusOr<Golden> ParseGolden(absl::string_view text);
std::string ToString(const Golden& golden);

// Runs the script and returns its trace in the format of Golden::expected. Times are in seconds since the
// start.
std::string GoldenTrace(const Script& script);

// The differing lines, prefixed with "-" or "+", with two lines of context. Empty if the texts are equal.
std::string LineDiff(absl::string_view expected, absl::string_view actual);

}  // namespace ddprun::sim
