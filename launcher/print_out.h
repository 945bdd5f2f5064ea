// Output of commands that run no job, such as --help.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

// Writes all of `text` to stdout and returns the exit code: 0, or 1 if the write failed, so that a truncated
// script is not mistaken for a complete one. Prints the error to stderr, except for a closed pipe (| head).
int PrintOut(absl::string_view text);

}  // namespace ddprun
