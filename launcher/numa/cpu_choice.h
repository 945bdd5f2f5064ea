// Chooses the processors of each worker, near the GPU whose index is the worker's local rank. Pure: performs
// no I/O.
#pragma once

#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/numa/cpu_topology.h"

namespace ddprun {

// Returns the value of --numa-binding: "node", "socket", ...
const char* NameOf(NumaBinding binding);

// Returns the processors of each worker, indexed by local rank. No set is empty, and the sets contain only
// processors in topology.allowed.
//   kNode:        all processors of the GPU's node.
//   kSocket:      all processors of the nodes on the socket of the GPU's node.
//   kExclusive:   a share of the physical cores of the GPU's node. Cores are divided in order among all GPUs
//                 of the node, including GPUs without a worker. If there is a remainder, the first GPUs get
//                 one more core each. All hyperthreads of a core are in the same share.
//   kCoreComplex: a group of processors that share their largest cache. Groups are assigned to the GPUs of a
//                 node in order of decreasing size, and groups of equal size in order of processor number.
//                 GPUs share groups only if there are more GPUs than groups.
//   gpu_nodes:    NUMA nodes of the visible GPUs, in CUDA's order.
//   Errors:       kFailedPrecondition: there are too few GPUs, allowed processors or cores, or the system
//                 does not report a required part of the topology. The message names the missing part.
absl::StatusOr<std::vector<std::set<int>>> ChooseCpus(NumaBinding binding, const CpuTopology& topology,
                                                      const std::vector<int>& gpu_nodes, int num_workers);

}  // namespace ddprun
