// Derives a simulated job and its faults from a seed.
#pragma once

#include <cstdint>

#include "tests/sim/script.h"

namespace ddprun::sim {

// Returns the script for `seed`. Times are whole milliseconds, so the script survives a round trip through
// text.
Script DrawScript(uint64_t seed);

}  // namespace ddprun::sim
