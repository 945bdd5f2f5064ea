// The nodes that a job knows, with their leases: a container that keeps its counts and deadlines.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

enum class Phase {
  kWaiting,    // has no workers and an empty store: may be sealed into the next round
  kRunning,    // in the round, workers started
  kSucceeded,  // in the round, all its workers ended with 0
  kStopping,   // in the round, told to stop its workers
  kLost,       // in the round; cannot be spoken to, and its workers may run until its lease ends
};
inline constexpr int kNumPhases = 5;

struct Member {
  NodeInfo info;
  Phase phase = Phase::kWaiting;
  uint64_t arrival = 0;
  // In the last round it was in; none: it was in none.
  std::optional<GroupRank> rank = {};
  Rank first_rank = {};
  std::optional<Round> round = {};        // which that was
  TimePoint lease_end = {};               // meaningless unless info.leased
  TimePoint join_end = {};                // when it gives up waiting, if still waiting then
  Progress progress = {};                 // the newest
  std::optional<std::string> drain = {};  // it is to be taken out; why, in words of whoever wants it
  bool excluded = false;                  // left out of rounds as long as there are enough others
  bool leaving = false;                   // it stops its workers and leaves by itself
};

inline NodeName NameOf(const Member& member) { return {member.info.id, member.info.host}; }
inline bool InRound(const Member& member) { return member.phase != Phase::kWaiting; }

// Invariants: count(p) is the number of members in phase p; next_lease_end() is the least lease_end of the
// leased ones, next_join_end() the least join_end of the waiting ones. All calls take O(log n), except where
// a result lists members.
class Membership {
 public:
  // REQUIRES: no member has info.id.
  Member& Add(NodeInfo info, TimePoint lease_end, TimePoint join_end);
  // REQUIRES: a member has this id.
  void Remove(const NodeId& id);
  // Null if there is none; good until the next Add or Remove.
  const Member* Find(const NodeId& id) const;
  // REQUIRES: a member has this id. Good as long as Find's result.
  const Member& At(const NodeId& id) const;
  // The member with this requested rank, or null.
  const Member* FindRequested(int rank) const;

  void SetPhase(const NodeId& id, Phase phase);
  void SetPlace(const NodeId& id, Round round, GroupRank rank, Rank first_rank);
  void SetProgress(const NodeId& id, Progress progress);
  void SetDrain(const NodeId& id, std::string why);
  void SetLeaving(const NodeId& id);
  // All members of the host.
  void SetExcluded(const std::string& host);
  // Its phase is kLost from now on; another node may take its requested rank, and it is not drained.
  void SetLost(const NodeId& id);
  void SetStorePort(const NodeId& id, int port);
  void SetJoinEnd(const NodeId& id, TimePoint join_end);
  void RenewLease(const NodeId& id, TimePoint lease_end);
  // Every leased member's lease ends no earlier than `lease_end`.
  void RenewAllLeases(TimePoint lease_end);

  int size() const { return static_cast<int>(members_.size()); }
  int count(Phase phase) const { return counts_[static_cast<size_t>(phase)]; }
  // Members that the round is made of: all phases but kWaiting.
  int in_round() const { return size() - count(Phase::kWaiting); }
  // Excluded members that wait.
  int excluded_waiting() const;
  // Members that are to be taken out, by id.
  const std::set<NodeId>& to_be_drained() const { return to_be_drained_; }
  std::optional<TimePoint> next_lease_end() const;
  std::optional<TimePoint> next_join_end() const;
  // The ids whose lease ends at `now` or earlier, earliest first.
  std::vector<NodeId> ExpiredLeases(TimePoint now) const;
  // The ids that wait and whose join_end is `now` or earlier, earliest first.
  std::vector<NodeId> ExpiredJoins(TimePoint now) const;
  // By id; the order is the same in every run.
  const std::map<NodeId, Member>& members() const { return members_; }

 private:
  using Deadlines = std::set<std::pair<TimePoint, NodeId>>;

  Member& Mutable(const NodeId& id);
  static std::optional<TimePoint> First(const Deadlines& deadlines);
  static std::vector<NodeId> Until(const Deadlines& deadlines, TimePoint now);

  std::map<NodeId, Member> members_;
  std::map<int, NodeId> requested_;
  std::array<int, kNumPhases> counts_ = {};
  Deadlines leases_;  // of leased members
  Deadlines joins_;   // of waiting members
  std::set<NodeId> to_be_drained_;
  std::set<NodeId> excluded_;
  uint64_t next_arrival_ = 0;
};

// Who should be in a job and is not: nodes that were in it, and hosts that a scheduler has named.

// All calls take O(log n), except where a list is given or made.
class AbsentNodes {
 public:
  // The first list that is not empty stands.
  void Expect(const std::vector<std::string>& hosts);
  // A node of this host is there; it takes the place of the one of that host that went first.
  void Came(const std::string& host);
  // One of those that had come is there no more.
  void Went(const std::string& host);
  // The same for one that is to be waited for, because it was in the last round.
  void Lost(const std::string& host, MissedReason why, TimePoint now);
  // The same for one that somebody took out: nobody waits for its host any more.
  void TakenOut(const std::string& host);
  // A round begins without those that were lost before.
  void Sealed() { lost_.clear(); }

  // By host; of one host the earliest first.
  std::vector<AbsentNode> List() const;

 private:
  bool told_ = false;  // whom to expect
  std::set<std::string> expected_;
  std::map<std::string, int> present_;  // nodes by host, none with 0
  std::multimap<std::string, AbsentNode> lost_;
};

}  // namespace ddprun
