// Output of commands that run no job, such as --help.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

// Writes all of `text` to stdout. Returns the exit code: 0, or 1 if the write failed, so that a truncated
// completion script is not mistaken for a complete one. Prints a write error to stderr, unless the reader has
// closed the pipe (ddprun --help | head).
int PrintOut(absl::string_view text);

}  // namespace ddprun
