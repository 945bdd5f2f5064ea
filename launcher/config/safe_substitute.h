// Texts of users with variables in them, by the rules of Python's string.Template.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun {

// `text` with each $name and ${name} of `values` replaced; $$ gives $. Every other $ stays as it is, also
// that of a longer name that begins as one of ours. Values are not looked into again.
std::string SafeSubstitute(absl::string_view text, const std::map<std::string, std::string>& values);

}  // namespace ddprun
