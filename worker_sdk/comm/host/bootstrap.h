// How the ranks of a round find each other, before any data moves.
//
//   every hub    publishes   node/<g>  "<first rank> <ranks> <chunk bytes> <hub's unix name>"
//   every rank   publishes   rank/<r>  "<ip> <port> <token>"     (with several nodes)
//   ranks connect to their hub, and get the segment; lanes and hubs connect to those of the nodes before
//   theirs.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"
#include "worker_sdk/comm/store.h"

namespace ddprun {

// All that a communicator runs on.
struct Links {
  Topology topology;
  Segment segment;
  std::vector<Monitor::Peer> watched;
  std::vector<TcpMesh::Peer> lane;  // by node; empty for a rank that is no lane, and with one node
};

//   Errors: CreateHostCommunicator's.
absl::StatusOr<Links> Bootstrap(const HostCommunicatorOptions& options, Store* store);

}  // namespace ddprun
