// The backend `host`: shared memory between the ranks of a node, TCP between nodes.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// Finds the other ranks through `store` and returns when all are connected. `store` is used only during the
// call, and not at all with one rank. Leaves nothing behind when its processes die: the segment is a memfd,
// and socket names are abstract.
//   Errors: kInvalidArgument: options that are inconsistent in themselves or between ranks;
//           kDeadlineExceeded: a rank did not appear, named in the message;
//           kUnavailable: a rank died during setup, or the store is not reachable.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicator(const HostCommunicatorOptions& options,
                                                                     Store* store);

enum class AllReduceAlgorithm : int;  // all_reduce_choice.h

// As above, with one algorithm for all-reduces of every size. For tests and benchmarks.
//   REQUIRES: `only` fits the split of ranks into nodes and is equal on all ranks.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicatorForTest(
    const HostCommunicatorOptions& options, Store* store, AllReduceAlgorithm only);

}  // namespace ddprun
