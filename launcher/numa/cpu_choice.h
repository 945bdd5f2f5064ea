// Chooses the processors of each worker, near the GPU whose index is the worker's local rank. Pure.
#pragma once

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {

// The value of --numa-binding: "node", "socket", ...
const char* NameOf(NumaBinding binding);

// Returns the processors of each worker, by local rank. No set is empty; all processors are allowed ones.
//   kNode:        all processors of the GPU's node.
//   kSocket:      all processors of the nodes on the socket of the GPU's node.
//   kExclusive:   a share of the node's physical cores. They are dealt in order to all GPUs of the node, with
//                 or without a worker; the first GPUs get the remainder. Hyperthreads of a core stay
//                 together.
//   kCoreComplex: a group of processors that share their largest cache. The GPUs of a node get different
//                 groups while there are enough, those with more processors first, then those with lower
//                 numbers.
//   gpu_nodes:    NUMA nodes of the visible GPUs, in CUDA's order.
//   Errors:       kFailedPrecondition: too few GPUs, allowed processors or cores, or topology that this
//                 system does not report; the message names it.
absl::StatusOr<std::vector<std::set<int>>> ChooseCpus(NumaBinding binding, const CpuTopology& topology,
                                                      const std::vector<int>& gpu_nodes, int num_workers);

}  // namespace ddprun
