// What a command without a job prints.
#pragma once

#include "absl/strings/string_view.h"

namespace ddprun {

// Writes all of `text` to stdout. Returns the exit code: 0; or 1 where it cannot be written, since half of a
// script must not pass for the whole. That is said on stderr, but not of a reader that has gone (| head).
int PrintOut(absl::string_view text);

}  // namespace ddprun
