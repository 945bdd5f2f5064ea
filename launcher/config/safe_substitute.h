// Substitutes variables in user-supplied strings, by the rules of Python's string.Template.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// Replaces each $name and ${name} in `text` whose name is in `values`; $$ becomes $. Any other $ is
// unchanged, including in front of a longer name that starts with a known one. Substituted values are not
// scanned again.
std::string SafeSubstitute(absl::string_view text, const std::map<std::string, std::string>& values);

}  // namespace ddprun
