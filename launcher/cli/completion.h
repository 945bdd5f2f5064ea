// --print-completion: a shell script that completes ddprun's options and their values.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// `shell`: bash, zsh or tcsh. After the program, file names are completed instead of options.
std::string CompletionScript(absl::string_view shell);

}  // namespace ddprun
