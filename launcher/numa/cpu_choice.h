// Which processors a worker runs on, near the GPU whose index is its local rank. Pure.
#pragma once

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {

// "node", ... as --numa-binding takes it.
const char* NameOf(NumaBinding binding);

// The processors of each worker, by local rank: never empty, and all of them allowed.
//   kNode:        all of the GPU's node.
//   kSocket:      all of the nodes whose processors are on the socket of the GPU's node.
//   kExclusive:   the node's physical cores, dealt in their order to all GPUs of the node, whether they have
//                 a worker or not; what does not go evenly goes to the first ones. Hyperthreads stay
//                 together.
//   kCoreComplex: one group of those that share their largest cache, a different one for each GPU of the node
//                 as far as there are any; groups with more processors come first, then those with lower
//                 ones.
//   `gpu_nodes`: NUMA nodes of the visible GPUs, in CUDA's order.
//   Errors: kFailedPrecondition, naming what there is too little of: GPUs, allowed processors, cores; or what
//           this machine does not tell.
absl::StatusOr<std::vector<std::set<int>>> ChooseCpus(NumaBinding binding, const CpuTopology& topology,
                                                      const std::vector<int>& gpu_nodes, int num_workers);

}  // namespace ddprun
