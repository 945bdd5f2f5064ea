// What a rank must know to make a communicator of the backend `host`.
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
  GroupRank group_rank = {};  // the node; nodes are in the order of their ranks
  int group_world_size = 1;
  Round round = {};
  std::string run_id = {};
  // Numeric IP address by which the other nodes reach this one; listened on with a port of the system's
  // choice until all are connected. Not used with one node.
  std::string address = "127.0.0.1";
  // A node from which nothing has come for so long, not even TCP's acknowledgements, is cut off, though its
  // processes live: the job's lease. At least 2 s, for TCP itself takes seconds; noticed at most 1 s later.
  // A node that is silent only because its ranks compute is not cut off.
  Duration silence_limit = seconds(5);
  // For all ranks to appear and connect.
  Duration setup_timeout = seconds(60);
  // Bytes of a rank's input that travel at a time. The shared segment holds 2 * (ranks of the node + 1) of
  // it. More hides more latency, less stays in the cache. The same on all ranks; a multiple of 64.
  size_t chunk_bytes = 256 * 1024;
};

}  // namespace ddprun
