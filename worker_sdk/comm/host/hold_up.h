// Finds the ranks that hold up an operation whose deadline has passed.
#pragma once

#include <vector>

#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// Asks all ranks whether they run, and waits until all have answered, at most 200 ms. The monitor thread of a rank answers
// even while the rank computes, so a rank that does not answer is stopped or cut off. Returns these ranks, numbered as in
// the world; of a node whose first rank does not answer, only that one, through which the others would answer.
//   local_rank: this rank's, on `node`.
std::vector<int> RanksThatDoNotAnswer(const Topology& topology, int node, int local_rank,
                                      const Segment& segment, Monitor* monitor);

// The ranks that delay a collective operation: those that do not answer, or else those that run but do not wait for others,
// which have not started the operation. Empty if there are none, and if communication has ended meanwhile.
std::vector<int> RanksThatHoldUp(const Topology& topology, int node, int local_rank, const Segment& segment,
                                 Monitor* monitor);

}  // namespace ddprun
