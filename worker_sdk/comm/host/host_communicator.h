// The `host` backend. It uses shared memory between the ranks of a node, and TCP between nodes.
#pragma once

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

// Finds the other ranks through `store` and returns when all ranks are connected. `store` is used only during
// this call, and may be null if there is only one rank. A communicator leaves no files behind when its
// processes die: the segment is a memfd, and socket names are abstract.
//   Errors: kInvalidArgument: this rank's options are inconsistent or contradict those of another rank;
//           kDeadlineExceeded: a rank did not appear in time; the message names the rank;
//           kUnavailable: a rank died during setup, or the store is not reachable.
StatusOr<Communicator> CreateHostCommunicator(const HostCommunicatorOptions& options, Store* store);

enum class AllReduceAlgorithm : int;  // all_reduce_choice.h

// Like CreateHostCommunicator, but uses the algorithm `only` for all-reduces of every size. For tests and
// benchmarks.
//   REQUIRES: `only` fits the split of ranks into nodes and is equal on all ranks.
StatusOr<Communicator> CreateHostCommunicatorForTest(const HostCommunicatorOptions& options, Store* store,
                                                     AllReduceAlgorithm only);

}  // namespace ddprun
