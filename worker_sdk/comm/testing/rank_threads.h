// Runs each rank of a round as a thread of the test.
#pragma once

#include <functional>

#include "ddprun/communicator.h"

namespace ddprun {

// Calls `body` on one thread for each rank, with a communicator of its own. The communicators use shared memory, like
// those of separate processes. Returns when all calls have returned.
void WithRanks(int world, const std::function<void(Communicator&)>& body);

}  // namespace ddprun
