// Splits a command as a POSIX shell does, without expansions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Splits at blanks outside quotes, and removes quotes and backslashes as sh does: `ssh -F 'my config'` is three words. Other
// characters, such as $ and *, have no special meaning.
//   Errors: kInvalidArgument: an unterminated quote, a backslash at the end.
absl::StatusOr<std::vector<std::string>> SplitShellWords(absl::string_view text);

}  // namespace ddprun
