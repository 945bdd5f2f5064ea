// Texts of --help and of usage errors.
#pragma once

#include <string>

namespace ddprun {

// "usage: ddprun ...", with a line break at the end.
std::string UsageLine();

// The text of --help, with the sections of the option table. No line is longer than 100 columns.
std::string HelpText();

}  // namespace ddprun
