// From a number to a job and what happens to it.
#pragma once

#include <cstdint>

#include "tests/sim/script.h"

namespace ddprun::sim {

// The script of this seed. Times are whole milliseconds, so that it is the same when it has been text.
Script DrawScript(uint64_t seed);

}  // namespace ddprun::sim
