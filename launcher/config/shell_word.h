// Text that a shell reads as one word.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// In quotes if a shell would see more in it than its letters.
std::string ShellWord(absl::string_view word);

}  // namespace ddprun
