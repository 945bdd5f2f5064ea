// Substitutes variables in user-supplied strings, by the rules of Python's string.Template.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Replaces each $name and ${name} in `text` with the value of that name in `values`, and $$ with $. Any
// other $ is left unchanged, even before a longer name that starts with a name in `values`. Substituted
// values are not scanned again.
std::string SafeSubstitute(absl::string_view text, const std::map<std::string, std::string>& values);

}  // namespace ddprun
