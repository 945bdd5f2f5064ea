// The backend `host`: shared memory between the ranks of a node, TCP across nodes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// Meets the other ranks through `store` (not needed after, and not at all with one rank) and returns when all
// are connected. Nothing of it can outlive its processes: the segment is a memfd, names of sockets are
// abstract.
//   Errors: kInvalidArgument: numbers that do not fit together, here or between ranks; kDeadlineExceeded
//           naming a rank that did not appear; kUnavailable: a rank died on the way, or the store is gone.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicator(const HostCommunicatorOptions& options,
                                                                     Store* store);

enum class AllReduceAlgorithm : int;  // all_reduce_choice.h

// As above, with one algorithm for all-reduces of every size; it fits the split of ranks into nodes, and all
// ranks give the same. For tests and benchmarks of the algorithms.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicatorForTest(
    const HostCommunicatorOptions& options, Store* store, AllReduceAlgorithm only);

}  // namespace ddprun
