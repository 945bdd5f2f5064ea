// The voters of a job: processes on distinct hosts that keep the job's register among them. They are nodes of the job or witnesses.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

struct Voter {
  std::string id = {};       // unique to one process: a process that has restarted is another voter
  std::string address = {};  // HOST:PORT at which it answers
  bool witness = false;      // it is no node of the job; see Witness
  bool operator==(const Voter&) const = default;
};

// A quorum has more than half of the voters, or exactly half of them if the tie breaker is among these. Any two quorums have a
// voter in common.
struct VoterGroup {
  std::vector<Voter> voters = {};
  std::string tie_breaker = {};  // id of a voter: that of the leader which has chosen the group
  bool operator==(const VoterGroup&) const = default;
};

// The voters change in two steps, as in the joint consensus of Raft: first both groups have to agree to each write, then the new
// one alone.
struct VoterSet {
  int64_t number = 0;  // increases with each change; 0: no voter is known
  VoterGroup now = {};
  std::optional<VoterGroup> before = {};  // set between the two steps
  bool operator==(const VoterSet&) const = default;
};

// Whether the voters with these ids are a quorum. An empty group has none.
bool IsQuorum(const VoterGroup& group, const std::set<std::string>& ids);
// A set has a quorum if each of its groups has one.
bool IsQuorum(const VoterSet& set, const std::set<std::string>& ids);

// Returns the voters that were certainly chosen if a record with `set` was proposed: one group alone is proposed only when the set
// with both groups is chosen, and a set with both groups replaces one group alone.
VoterSet CertainlyChosen(const VoterSet& set);
// Returns the voters of both groups, each once.
std::vector<Voter> AllVoters(const VoterSet& set);

}  // namespace ddprun
