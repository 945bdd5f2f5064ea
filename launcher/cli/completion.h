// --print-completion: a shell script that completes ddprun's options and their values.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the script for `shell`: bash, zsh or tcsh. After the program on the command line, the script
// completes file names instead of options.
std::string CompletionScript(absl::string_view shell);

}  // namespace ddprun
