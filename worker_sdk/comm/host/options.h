// Options of a communicator of the backend `host`.
#pragma once

#include <cstddef>
#include <string>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct HostCommunicatorOptions {
  Rank rank = {};
  int world_size = 1;
  LocalRank local_rank = {};  // ranks of a node are consecutive: rank - local_rank is the node's first
  int local_world_size = 1;   // may differ between nodes
  GroupRank group_rank = {};  // the node's number; nodes are in the order of their ranks
  int group_world_size = 1;
  Round round = {};
  std::string run_id = {};
  // Numeric IP address at which other nodes reach this one. The rank listens there, on a port chosen by the
  // system, until all ranks are connected. Not used with one node.
  std::string address = "127.0.0.1";
  // A node from which nothing has arrived for this long, not even TCP acknowledgements, counts as cut off
  // even if its processes are alive. Set to the job's lease. At least 2 s, because TCP's keepalive works in
  // whole seconds; detected at most 1 s later. A node whose ranks compute without communicating still sends
  // acknowledgements and is not cut off.
  Duration silence_limit = seconds(5);
  // Time limit for all ranks to appear and connect.
  Duration setup_timeout = seconds(60);
  // Bytes of a rank's input in one chunk. The shared segment holds 2 * (ranks of the node + 1) chunks. Larger
  // chunks hide more latency, smaller ones stay in the cache. Equal on all ranks; a multiple of 64.
  size_t chunk_bytes = 256 * 1024;
};

}  // namespace ddprun
