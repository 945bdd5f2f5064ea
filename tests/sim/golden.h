// Golden traces: worked examples of the protocol, one scenario per file in tests/sim/golden. A
// file has a comment, a script, a line "----", and the script's full trace. The trace omits
// heartbeats and their answers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/script.h"

namespace ddprun::sim {

struct Golden {
  std::string head;  // comment and script, as they are in the file
  Script script;
  std::string expected;  // the trace; each line ends with '\n'
};

// Errors: kInvalidArgument: there is no line "----", or the script is invalid.
absl::StatusOr<Golden> ParseGolden(absl::string_view text);
std::string ToString(const Golden& golden);

// The trace that a file with this script must contain. Times are seconds since the start.
std::string GoldenTrace(const Script& script);

// Differing lines prefixed with "-" or "+", with two lines of context. Empty if the texts are equal.
std::string LineDiff(absl::string_view expected, absl::string_view actual);

}  // namespace ddprun::sim
