// --print-completion: a script that makes a shell complete ddprun's options and their values.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// For `shell`: bash, zsh or tcsh. Options end at the program, behind which files are completed.
std::string CompletionScript(absl::string_view shell);

}  // namespace ddprun
