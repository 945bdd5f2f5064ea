// A container for the nodes of a job and their leases. Maintains counts and deadlines.
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
  kWaiting,    // not in the round; has no workers, has an empty store and may join the next round
  kRunning,    // in the round; its workers were started
  kSucceeded,  // in the round; all its workers exited with 0
  kStopping,   // in the round; was ordered to stop its workers
  kLost,       // in the round; unreachable, but its workers may still run until its lease ends
};
inline constexpr int kNumPhases = 5;

// A notice of pre-emption.
struct Notice {
  std::string why = {};
  TimePoint stop_at = {};                 // when the round ends at the latest
  TimePoint end = {};                     // when the node goes away
  std::optional<TimePoint> back_at = {};  // when the node joins again
};

struct Member {
  NodeInfo info;
  Phase phase = Phase::kWaiting;
  uint64_t arrival = 0;  // position in the order of joining
  // `round` is the last round of the member; `rank` and `first_rank` are its ranks in that round. `round` and
  // `rank` are nullopt if the member has been in no round.
  std::optional<GroupRank> rank = {};
  Rank first_rank = {};
  std::optional<Round> round = {};
  TimePoint lease_end = {};               // meaningless unless info.leased
  TimePoint join_end = {};                // end of the join timeout; meaningful in phase kWaiting
  Progress progress = {};                 // the last report
  std::optional<std::string> drain = {};  // why the member is to be drained; nullopt if it is not
  std::optional<Notice> notice = {};      // set: the node is pre-empted
  bool excluded = false;                  // left out of rounds while there are enough other nodes
  bool leaving = false;                   // stopping its workers in order to leave the job
};

inline NodeName NameOf(const Member& member) { return {member.info.id, member.info.host}; }
inline bool InRound(const Member& member) { return member.phase != Phase::kWaiting; }

// Invariants: count(p) is the number of members in phase p. next_lease_end() is the earliest lease_end of
// the leased members. next_join_end() is the earliest join_end of the waiting members. Calls take O(log n),
// except calls that return a list, count the excluded members, or change all members of a host or of the
// job.
class Membership {
 public:
  // REQUIRES: no member has info.id.
  Member& Add(NodeInfo info, TimePoint lease_end, TimePoint join_end);
  // REQUIRES: a member has this id.
  void Remove(const NodeId& id);
  // Returns null if there is no such member. The pointer is valid until the next Add or Remove.
  const Member* Find(const NodeId& id) const;
  // Like Find. REQUIRES: a member has this id.
  const Member& At(const NodeId& id) const;
  // Returns the member with this requested rank, or null.
  const Member* FindRequested(int rank) const;

  void SetPhase(const NodeId& id, Phase phase);
  void SetPlace(const NodeId& id, Round round, GroupRank rank, Rank first_rank);
  void SetProgress(const NodeId& id, Progress progress);
  void SetDrain(const NodeId& id, std::string why);
  void SetNotice(const NodeId& id, Notice notice);
  void SetLeaving(const NodeId& id);
  // Excludes all members of the host.
  void SetExcluded(const std::string& host);
  // Sets phase kLost, frees the requested rank for another node, and cancels a drain and a notice.
  void SetLost(const NodeId& id);
  void SetStorePort(const NodeId& id, int port);
  void SetJoinEnd(const NodeId& id, TimePoint join_end);
  void RenewLease(const NodeId& id, TimePoint lease_end);
  // Extends every lease to at least `lease_end`.
  void RenewAllLeases(TimePoint lease_end);

  int size() const { return static_cast<int>(members_.size()); }
  int count(Phase phase) const { return counts_[static_cast<size_t>(phase)]; }
  // Number of members in the round: the members in any phase except kWaiting.
  int in_round() const { return size() - count(Phase::kWaiting); }
  // Number of excluded members in phase kWaiting.
  int excluded_waiting() const;
  // Number of members in phase kWaiting that are leaving: their parked workers have not exited.
  int leaving_waiting() const;
  const std::set<NodeId>& to_be_drained() const { return to_be_drained_; }
  // The members with a notice of pre-emption.
  const std::set<NodeId>& noticed() const { return noticed_; }
  std::optional<TimePoint> next_lease_end() const;
  std::optional<TimePoint> next_join_end() const;
  // Members whose lease ends at `now` or earlier, earliest first.
  std::vector<NodeId> ExpiredLeases(TimePoint now) const;
  // Waiting members whose join_end is `now` or earlier, earliest first.
  std::vector<NodeId> ExpiredJoins(TimePoint now) const;
  // Sorted by id, so that the order is deterministic.
  const std::map<NodeId, Member>& members() const { return members_; }

 private:
  using Deadlines = std::set<std::pair<TimePoint, NodeId>>;

  Member& Mutable(const NodeId& id);
  int CountWaiting(const std::set<NodeId>& ids) const;
  static std::optional<TimePoint> First(const Deadlines& deadlines);
  static std::vector<NodeId> Until(const Deadlines& deadlines, TimePoint now);

  std::map<NodeId, Member> members_;
  std::map<int, NodeId> requested_;
  std::array<int, kNumPhases> counts_ = {};
  Deadlines leases_;  // of leased members
  Deadlines joins_;   // of waiting members
  std::set<NodeId> to_be_drained_;
  std::set<NodeId> noticed_;
  std::set<NodeId> excluded_;
  std::set<NodeId> leaving_;
  uint64_t next_arrival_ = 0;
};

// The nodes that are missing from a job: lost nodes of the last round, and hosts that a scheduler named but
// that have no node. Calls take O(log n), except calls that take or return a list.
class AbsentNodes {
 public:
  // Continues with what Expected returned in another process.
  void Resume(const std::optional<std::set<std::string>>& expected);
  // Sets the expected hosts. Only the first nonempty list counts.
  void Expect(const std::vector<std::string>& hosts);
  // A node of `host` joined. If nodes of `host` were lost, the new node replaces the one that was lost first.
  void Came(const std::string& host);
  // A node of `host` is no longer present.
  void Went(const std::string& host);
  // Like Went, but the node was in the last round, so the job waits for it to return.
  void Lost(const std::string& host, MissedReason why, TimePoint now);
  // Like Went, but the node was drained. The host is no longer expected, unless another node of the host is
  // present.
  void TakenOut(const std::string& host);
  // A node of `host` that was lost has exited. It does not return, and the host is no longer expected, unless another
  // node of the host is present.
  void Exited(const std::string& host);
  // A round was sealed without the lost nodes. They are no longer missing.
  void Sealed() { lost_.clear(); }

  // Returns the number of expected hosts without a node, or nullopt if no hosts are expected.
  std::optional<int> CountExpected() const;
  // Returns the hosts that are still expected, or nullopt if none ever were.
  std::optional<std::set<std::string>> Expected() const;
  // Returns whether there are expected hosts, and each of them has a node.
  bool AllExpectedPresent() const;
  // Number of lost nodes that have not left by themselves.
  int CountMayReturn() const;
  // Sorted by host, then by time of loss.
  std::vector<AbsentNode> List() const;

 private:
  bool has_expected_ = false;  // Expect was called with a nonempty list
  std::set<std::string> expected_;
  std::map<std::string, int> present_;  // number of nodes per host; never 0
  std::multimap<std::string, AbsentNode> lost_;
};

}  // namespace ddprun
