// Names that nobody else has.
#pragma once

#include <string>

namespace ddprun {

// A UUID of version 4, as "8f3c1e0a-4b7d-4c1e-9a52-0d6f3b8e7c14": random but for the bits that say so.
std::string RandomUuid();

}  // namespace ddprun
