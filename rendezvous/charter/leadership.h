// The rules by which one process at a time leads a job, on top of the job's register.
//
// clang-format off
//                    Connected                      a renewal is missing
//   +---------+ ------------------> +-----------+    for a lease
//   | Seeking |                     | Following | ----------------------+
//   +---------+ <------------------ +-----------+                       |
//      |   ^       Disconnected                                         v
//      |   |                                                       +---------+
//      |   +------------ lapsed, another one leads --------------- | Leading | --> Leaving --> Ended
//      +---------------------------------------------------------> +---------+
//        a swap has succeeded
// clang-format on
//
// The only clock is the boot clock of the own host. Clocks may run up to 10 % fast or slow.
// * The leader renews its lead by swaps. It leads until kTerm leases after it has *sent* the last swap that was acknowledged.
// * A candidate that sees no leader counts a whole lease from the moment at which it has *received* the version that is still
//   current, then swaps exactly this version. If the swap is refused, somebody else has written, and the count begins again.
// * So the old leader has stopped after 0.8 / 0.9 = 0.889 leases of true time at the latest, and no other one begins before
//   1 / 1.1 = 0.909. What a leader promises others, such as the fence of a node, must end with its lead.
// * A leader that leaves in an orderly way says so in its last swap. Then candidates do not count.
// * Nor do they if they know that the leader's process no longer serves (LeaderGone). A leader that does live finds its next swap
//   refused. But its promises may last for the rest of its lead: BeginToLead::fenced.
// * A swap whose answer is lost may have happened, or may happen later. The leader reads the record; one with its own id was
//   written by its swap of that number, so its lead counts from the moment at which that swap was sent.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "os/boot_clock.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/charter/lead.h"

namespace ddprun {

struct LeadershipRules {
  Duration lease = seconds(5);
  std::string id = {};       // of this candidate: unique, also among its earlier processes
  std::string address = {};  // HOST:PORT at which this process serves when it leads
  // Whether this process can continue a job with this charter. With the charter of another job, or of another version, it
  // leads never. Pure; empty: with any charter.
  std::function<absl::Status(const std::string& charter)> check = {};
};

// --- Events

// The agent has lost its coordinator, or has just started, and needs one.
struct Disconnected {};
// The agent is a node of the leader's job. A standby observes the register, so that it can take over without a delay.
struct Connected {
  bool standby = false;
};
struct ReadDone {
  absl::StatusOr<RegisterRecord> record;
};
struct SwapDone {
  absl::StatusOr<SwapResult> result;
};
// The process that leads with this epoch no longer serves: its host refuses connections to its port.
struct LeaderGone {
  int64_t epoch = 0;
};
// The job has a new charter. Effects that follow from it must wait for CharterWritten.
struct CharterChanged {
  std::string charter;  // encoded
};
// The leader no longer acts as one, and says so in the register. `state` is kLeft or kClosed. With kLeft, no node has workers.
//   REQUIRES: all charters are written.
struct LeaderEnds {
  Lead::State state = Lead::State::kLeft;
};
struct LeadershipTick {};
using LeadershipEvent = std::variant<Disconnected, Connected, ReadDone, SwapDone, LeaderGone, CharterChanged,
                                     LeaderEnds, LeadershipTick>;

// --- Effects

// Read the register. ReadDone follows, at the latest after `limit`.
struct ReadRegister {
  Duration limit{};
};
// Swap the record. SwapDone follows, at the latest after `limit`.
struct SwapRegister {
  int64_t version = 0;  // of the record that is expected
  bool exists = false;
  std::string lead = {};
  std::optional<std::string> charter = {};
  Duration limit{};
};
// Another process leads, and serves at this address. Issued again if a process was disconnected and the same one still leads.
struct FollowLeader {
  int64_t epoch = 0;
  std::string address = {};
};
// This process leads from now on, until leads_until().
struct BeginToLead {
  int64_t epoch = 0;
  std::string charter = {};  // the charter of the previous leader; empty: the job is new
  bool handed_over = false;  // there was no leader, or it has left: no node has workers
  bool fenced = false;       // the lead of the previous leader has ended, and with it the fences of its nodes
};
// The charters of this leader up to this number, counted from 1, are in the register.
struct CharterWritten {
  int64_t number = 0;
};
// This process no longer leads, and must stop everything that a leader does. It seeks a leader again.
struct LeadLost {
  std::string why;
};
// Follows LeaderEnds. Without `written`, the last swap may not have happened; then the others count a lease.
struct LeadEnded {
  bool written = false;
};
// The job is over, according to its charter.
struct JobIsOver {
  std::string charter;
};
// The register does not answer, or refuses what is asked, so that no leader can be found. For people; the machine goes on.
struct RegisterFails {
  absl::Status why;
  bool lost = false;  // for a lease, the register has said that it is lost (kDataLoss)
};
using LeadershipEffect = std::variant<ReadRegister, SwapRegister, FollowLeader, BeginToLead, CharterWritten,
                                      LeadLost, LeadEnded, JobIsOver, RegisterFails>;
using LeadershipEffects = std::vector<LeadershipEffect>;

// Pure: equal (state, event, now) give equal effects. One read or swap is in flight at a time.
class LeadershipMachine {
 public:
  enum class State { kSeeking, kFollowing, kLeading, kLeaving, kEnded };
  // In leases. See above for the relation of the first two.
  static constexpr double kTerm = 0.8;      // how long a leader leads after a swap
  static constexpr double kPatience = 1.0;  // how long a candidate counts
  static constexpr double kRenewal =
      0.1;  // from one swap of the leader to the next; also between reads of the others
  static constexpr double kCallLimit = 0.3;  // how long a read or a swap may take

  explicit LeadershipMachine(LeadershipRules rules);

  [[nodiscard]] LeadershipEffects Step(const LeadershipEvent& event,
                                       BootTime now);  // REQUIRES: now never decreases
  // The latest time for the next Step(LeadershipTick{}); nullopt if nothing is pending.
  std::optional<BootTime> NextDeadline() const;

  State state() const { return state_; }
  int64_t epoch() const { return lead_ ? lead_->epoch : 0; }
  // When the lead ends unless it is renewed. A process must not act as a leader at or after this time.
  //   REQUIRES: state() is kLeading.
  BootTime leads_until() const { return leads_until_; }

 private:
  // The swaps of this candidate that the register may still carry out, with the time at which they were sent.
  struct Sent {
    int64_t swap = 0;
    BootTime at;
  };

  void On(const Disconnected&);
  void On(const Connected& e);
  void On(const ReadDone& e);
  void On(const SwapDone& e);
  void On(const LeaderGone& e);
  void On(const CharterChanged& e);
  void On(const LeaderEnds& e);
  void On(const LeadershipTick&) {}

  Duration Leases(double n) const;
  // Takes note of the record in the register.
  void Saw(const RegisterRecord& record);
  // Returns the lead of a record, or why this process can neither lead nor follow with that record.
  absl::StatusOr<Lead> LeadOf(const RegisterRecord& record) const;
  // The record was written by a swap of this candidate's present lead or attempt.
  void SawOwn(const Lead& lead);
  // Returns whether `lead` is this candidate's present lead or attempt.
  bool IsOwn(const Lead& lead) const;
  // Returns when this candidate may try to lead; nullopt if it may not at present.
  std::optional<BootTime> MayLeadAt() const;
  // Returns when the lead of the record has certainly ended. REQUIRES: seen_lead_ leads.
  BootTime LapsesAt() const;
  void CallFailed(const absl::Status& why);
  // Issues what is due.
  void Advance();
  // Whether a leader has something to write that does not wait for the next renewal.
  bool Urgent() const { return charters_ > written_ || state_ == State::kLeaving; }
  void AdvanceLeading();
  void AdvanceWithoutLead();
  // Swaps the record for lead_, with the newest charter if the register may not have it.
  void Swap();
  // The lead is over, without or against this process's will.
  void Lose(std::string why);
  void Ended(bool written);
  bool HasLead() const { return state_ == State::kLeading || state_ == State::kLeaving; }

  const LeadershipRules rules_;
  State state_ = State::kSeeking;
  bool standby_ = false;

  // What is known of the record.
  std::optional<RegisterRecord> seen_;       // as a leader, only its version
  BootTime seen_at_;                         // when this version was received first
  bool read_ = false;                        // seen_ has the charter
  bool vanished_ = false;                    // the record of a leader was removed, which it may not know yet
  absl::StatusOr<Lead> seen_lead_ = Lead();  // meaningless unless the record exists
  std::optional<int64_t> followed_;          // the epoch of the last FollowLeader
  std::optional<int64_t> gone_;              // the epoch of the last LeaderGone

  // What this candidate has sent.
  bool in_flight_ = false;  // a read or a swap
  std::deque<Sent> sent_;   // oldest first
  BootTime next_call_;      // when the next read or renewal is due
  BootTime pause_end_;      // no call before; set after an error
  int64_t swaps_ = 0;

  // As a leader, or in the attempt to become one.
  std::optional<Lead> lead_;  // as it was sent last; nullopt: neither
  std::optional<BootTime> lost_since_;
  bool handed_over_ = false;  // see BeginToLead
  bool fenced_ = false;       // likewise
  BootTime leads_until_;
  std::string charter_;   // the newest one
  int64_t charters_ = 0;  // its number
  int64_t written_ = 0;   // the number of the newest one in the register

  std::optional<Lead::State> end_state_;  // of LeaderEnds

  // State of the current Step.
  BootTime now_;
  LeadershipEffects effects_;
};

}  // namespace ddprun
