// Universally unique identifiers.
#pragma once

#include <string>

namespace ddprun {

// Returns a random (version 4) UUID, such as "8f3c1e0a-4b7d-4c1e-9a52-0d6f3b8e7c14".
std::string RandomUuid();

}  // namespace ddprun
