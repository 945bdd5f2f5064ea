// Values of ddpctl's options that are times.
#pragma once

#include <string>

#include "base/time.h"

namespace ddprun {

// Reads "90s", "2m" or "90".
//   option: its name without dashes, for the error.
//   Errors: throws boost::program_options::error.
Duration ReadTime(const std::string& option, const std::string& text);

}  // namespace ddprun
