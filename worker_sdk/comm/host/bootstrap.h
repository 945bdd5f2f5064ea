// Connects the ranks of a round to each other, before any data is exchanged.
//
//   every hub    publishes   node/<g>  "<first rank> <ranks> <chunk bytes> <hub's unix name>"
//   every rank   publishes   rank/<r>  "<ip> <port> <token>"     (if there are several nodes)
//   Every other rank connects to its hub and receives the segment. Every lane and every hub connects to its
//   counterparts on the preceding nodes.
#pragma once

#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/host/point_to_point.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

// The memory and the connections of a communicator.
struct Links {
  Topology topology;
  Segment segment;
  std::vector<Monitor::Peer> watched;
  std::vector<TcpMesh::Peer> lane;  // by node; empty if the rank is not a lane or there is only one node
  std::optional<PointToPoint::Door> door;  // if there are several nodes
};

//   ended_fd: ends every wait as soon as it is readable; -1: none.
//   Errors: those of CreateHostCommunicator; kCancelled: ended_fd.
StatusOr<Links> Bootstrap(const HostCommunicatorOptions& options, Store* store, int ended_fd);

}  // namespace ddprun
