// Which nodes should be the voters of a job.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/voters/voter_set.h"

namespace ddprun {

struct VoterCandidate {
  std::string host = {};
  std::string address = {};  // HOST:PORT of the process
  int rank = 0;              // group rank
  bool leads = false;
  bool in_round = true;  // otherwise the node waits for the next round
};

// Returns the addresses of the candidates for the next voters, in the order of preference: the leader, those that are voters,
// those with the lowest ranks. They are on distinct hosts, unless all nodes are on one host. There are more of them than voters,
// because some may not answer. A node that waits for a round stays a voter, but does not become one.
//   witnesses: addresses of processes that are no nodes. They are chosen only while the nodes are fewer than three.
std::vector<std::string> ChooseVoters(std::vector<VoterCandidate> nodes, const VoterSet& voters,
                                      const std::vector<std::string>& witnesses = {});

}  // namespace ddprun
