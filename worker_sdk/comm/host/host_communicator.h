// The `host` backend: shared memory between the ranks of a node, TCP between nodes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// Finds the other ranks through `store` and returns when all are connected. `store` is used only during this
// call, and may be null if there is only one rank. A communicator leaves nothing behind when its processes
// die: the segment is a memfd, and socket names are abstract.
//   Errors: kInvalidArgument: one rank's options are inconsistent, or they contradict those of another rank;
//           kDeadlineExceeded: a rank did not appear in time; the message names it;
//           kUnavailable: a rank died during setup, or the store is not reachable.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicator(const HostCommunicatorOptions& options,
                                                                     Store* store);

enum class AllReduceAlgorithm : int;  // all_reduce_choice.h

// Like CreateHostCommunicator, but uses the algorithm `only` for all-reduces of every size. For tests and
// benchmarks.
//   REQUIRES: `only` fits the split of ranks into nodes and is equal on all ranks.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicatorForTest(
    const HostCommunicatorOptions& options, Store* store, AllReduceAlgorithm only);

}  // namespace ddprun
