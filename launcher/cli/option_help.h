// What --help and a usage error say.
#pragma once

#include <string>

namespace ddprun {

// "usage: ddprun ..." with the end of its line.
std::string UsageLine();

// The text of --help, grouped as the table of options; no line is longer than 100 columns.
std::string HelpText();

}  // namespace ddprun
