// The backend `host`: shared memory between the ranks of a node, TCP across nodes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/time.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

struct HostCommunicatorOptions {
  Rank rank;
  int world_size = 1;
  LocalRank local_rank;      // ranks of a node are consecutive: rank - local_rank is the node's first
  int local_world_size = 1;  // may differ between nodes
  GroupRank group_rank;      // the node; nodes are in the order of their ranks
  int group_world_size = 1;
  Round round;
  std::string run_id;
  // Numeric IP address by which the other nodes reach this one; listened on with a port of the system's
  // choice until all are connected. Not used with one node.
  std::string address = "127.0.0.1";
  // For all ranks to appear and connect.
  Duration setup_timeout = seconds(60);
  // Bytes of a rank's input that travel at a time. The shared segment holds 2 * (ranks of the node + 1) of
  // it. More hides more latency, less stays in the cache. The same on all ranks; a multiple of 64.
  size_t chunk_bytes = 256 * 1024;
};

// Meets the other ranks through `store` (not needed after, and not at all with one rank) and returns when all
// are connected. Nothing of it can outlive its processes: the segment is a memfd, names of sockets are
// abstract.
//   Errors: kInvalidArgument: numbers that do not fit together, here or between ranks; kDeadlineExceeded
//   naming
//           a rank that did not appear; kUnavailable: a rank died on the way, or the store is gone.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHostCommunicator(const HostCommunicatorOptions& options,
                                                                     Store* store);

}  // namespace ddprun
