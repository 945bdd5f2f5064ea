// Texts of --help and of usage errors.
#pragma once

#include <string>

namespace ddprun {

// "usage: ddprun ...", with a line break at the end.
std::string UsageLine();

// The text of --help, in the sections of the option table. Lines are at most 100 columns long.
std::string HelpText();

}  // namespace ddprun
