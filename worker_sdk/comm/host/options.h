// Options for a communicator of the `host` backend.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct HostCommunicatorOptions {
  Rank rank = {};
  int world_size = 1;
  LocalRank local_rank = {};  // ranks of a node are consecutive, starting at rank - local_rank
  int local_world_size = 1;   // may differ between nodes
  GroupRank group_rank = {};  // the node's number; nodes are numbered in the order of their ranks
  int group_world_size = 1;
  Round round = {};
  std::string run_id = {};
  // For a group that is a part of the world: the rank in the world of each of its ranks. Messages name ranks by these
  // numbers. Empty: the group is the world.
  std::vector<int> world_ranks = {};
  // Numeric IP address at which other nodes reach this one. The rank listens there, on a port chosen by the
  // system, until all ranks are connected. Not used if there is only one node.
  std::string address = "127.0.0.1";
  // A node counts as cut off if nothing arrives from it for this long, not even TCP acknowledgements. This is
  // detected at most 1 s later. The node's processes may still be alive. The limit should equal the job's
  // lease. It is rounded up to whole seconds, at least 2 s, because TCP keepalive works in whole seconds. A
  // node whose ranks compute without communicating still sends acknowledgements and is not cut off.
  Duration silence_limit = seconds(5);
  // Time limit for all ranks to appear and connect.
  Duration setup_timeout = seconds(60);
  // Time limit for Work::Wait() without a deadline.
  Duration timeout = seconds(300);
  // The directory with /proc and /sys, from which the free memory is read; for tests.
  std::string system_root = {};
  // Bytes of a rank's input in one chunk. The shared segment holds 4 * (ranks of the node + 1) chunks. Larger chunks hide
  // more latency; smaller ones stay in the cache. Must be equal on all ranks, a multiple of 64, at least 4096 and at
  // least world_size.
  size_t chunk_bytes = 512 * 1024;
};

}  // namespace ddprun
