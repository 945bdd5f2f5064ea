// Reads and writes the register of a job by asking its voters.
//
// clang-format off
//      all of a quorum have the same record
//   Ask -------------------------------------------------------------> done, unless it is the one that a swap expects
//    ^ |
//    | | it is, or they do not agree
//    | v      promised               the voters change              chosen
//    | Prepare --------> Probe ------------------------> Accept --------------> done, or Accept without the old voters
//    |    |              (only if the voters change)       |
//    +--- Pause <------------------------------------------+  another process has a higher ballot
// clang-format on
//
// * Ask disturbs no other process. A process that does not know the newest record learns it there, so that only those who know the present
//   record compete for the next one.
// * A record is chosen when a quorum of the voters of the record that it replaces, and of its own, has accepted it.
// * Prepare finds the newest record that may be chosen; the next record is computed from it. A read whose voters differ chooses
//   that record again.
// * Voters that have left or are proven to have exited do not count as lost, as long as this process leads and is a voter: its own
//   acceptor has every record that may be chosen since it leads.
// * The accepted record carries the promise for the next ballot, so that the next write of the same process skips Prepare.
// * A set of voters with two groups is replaced by one with the new group alone only when the former is known to be chosen. So
//   the old group is not asked any more only if each quorum of the new one knows the record.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

struct ProposerRules {
  Voter self = {};    // this process
  uint64_t seed = 0;  // of the pauses
};

// --- Events

// Both are answered by one CallDone, at `end` at the latest. One call at a time.
struct ReadWanted {
  TimePoint end;
};
struct SwapWanted {
  RegisterRecord expected = {};  // only `version` and `exists` count
  std::string lead = {};
  std::optional<std::string> charter = {};
  // Addresses of the processes that should be the voters, the preferred ones first; empty: as they are. Those that do not answer
  // are left out, unless they are voters. The voters stay as they are if no quorum of the new ones has answered.
  std::vector<std::string> candidates = {};
  // This process leads the job until then, so that no other process has written since its last write. Meanwhile a voter that has
  // exited is not lost if its address is one of `ended`: those of processes that have left the job, or are proven to have exited.
  std::optional<TimePoint> leads_until = {};
  std::vector<std::string> ended = {};
  TimePoint end = {};

  bool Ended(const Voter& voter) const {
    return std::find(ended.begin(), ended.end(), voter.address) != ended.end();
  }
};
struct VoteDone {
  int64_t number = 0;  // of SendVote
  absl::StatusOr<VoteReply> reply;
};
struct ProposerTick {};
using ProposerEvent = std::variant<ReadWanted, SwapWanted, VoteDone, ProposerTick>;

// --- Effects

// Send the request to a voter. VoteDone follows, at the latest after `limit`.
struct SendVote {
  int64_t number = 0;
  std::string address = {};
  VoteRequest request = {};
  Duration limit{};
};
// The call is complete.
struct CallDone {
  // Of ReadWanted: `current`.
  //   Errors: kDataLoss: so many voters have exited that no call will succeed any more, as far as this process knows the voters;
  //           kDeadlineExceeded; kUnavailable.
  absl::StatusOr<SwapResult> result;
};
using ProposerEffect = std::variant<SendVote, CallDone>;
using ProposerEffects = std::vector<ProposerEffect>;

// Pure: equal (state, event, now) give equal effects.
class Proposer {
 public:
  // A group has at most this number of voters.
  static constexpr size_t kMaxVoters = 5;

  // `voters`: as far as they are known.
  Proposer(ProposerRules rules, VoterSet voters);

  // REQUIRES: now never decreases; no call is in progress for ReadWanted and SwapWanted.
  [[nodiscard]] ProposerEffects Step(const ProposerEvent& event, TimePoint now);
  // The latest time for the next Step(ProposerTick{}); nullopt if nothing is pending.
  std::optional<TimePoint> NextDeadline() const;

  bool busy() const { return call_.has_value(); }
  // The newest voters of whose choice this process knows.
  const VoterSet& voters() const { return voters_; }
  // Takes note of voters that another process has chosen. REQUIRES: no call is in progress.
  void Learn(const VoterSet& voters);

 private:
  enum class Phase { kAsk, kPrepare, kProbe, kAccept, kPause };
  // What has become of a swap, seen from the newest record.
  enum class Fate {
    kOpen,     // the record is the expected one
    kWritten,  // it is that of the swap
    kLost,     // another process has written the next one, or the call is a read
    kUnknown,  // other processes have written since, perhaps after this one
  };
  // What has become of the request to one voter in the present phase.
  struct Answer {
    std::string id = {};  // empty for a probe, until the reply
    std::string address = {};
    int64_t in_flight = 0;  // number of the request; 0: none
    std::optional<VoteReply> reply = {};
    absl::Status error = {};              // the newest one
    std::optional<TimePoint> again = {};  // when the request is repeated
    bool with_charter = false;            // the voter does not have it
  };
  struct Call {
    bool swap = false;
    SwapWanted wanted = {};
    Phase phase = Phase::kAsk;
    std::map<std::string, Answer> answers = {};  // of this phase; by id, or by address for a probe
    TimePoint phase_began = {};
    int pauses = 0;
    // kProbe, kPause; kAsk, kAccept: when it stops to wait for the others.
    std::optional<TimePoint> phase_end = {};
    std::string obstacle = {};  // what delayed the last attempt
    Ballot ballot = {};
    std::optional<VotedRecord> found = {};  // what the proposal is computed from
    VotedRecord proposal = {};
    std::optional<Ballot> written = {};  // VotedRecord::written of a swap that some voters may have accepted
    bool swapped = false;
    bool probed = false;
    bool waited = false;  // of kProbe: the first wait is over
  };
  // A quorum has promised `ballot` to this process, and has accepted `record`.
  struct Prepared {
    Ballot ballot;
    VotedRecord record;
  };
  struct CachedCharter {
    Ballot written;
    std::string charter;
  };

  void Begin(Call call);
  void On(const ReadWanted& e);
  void On(const SwapWanted& e);
  void On(const VoteDone& e);
  void On(const ProposerTick&) {}
  void Advance();

  void Enter(Phase phase);
  void Ask(const VoterSet& set);
  void Ask(const Voter& voter);
  void Send(Answer& answer);
  void SendDue();
  VoteRequest Request(const Answer& answer) const;

  void StartAsk();
  void AdvanceAsk();
  void AdvancePrepare();
  void AdvanceProbe();
  void AdvanceAccept();
  void StartPrepare();
  // newest: null if there is none.
  Fate FateOfSwap(const VotedRecord* newest) const;
  void Propose();
  void StartProbe();
  void WaitForProbes();
  void StartAccept();
  void Chosen();
  // Whether what these voters have accepted or promised counts for `set`: they are a quorum, or all that are left of it, and this
  // process leads.
  bool Decide(const VoterSet& set, const std::set<std::string>& ids) const;
  // Ends the call if so many of these voters have exited that the others are no quorum; then returns true.
  bool FinishIfLost(const VoterSet& set);
  void Pause(std::string why);
  void Finish(absl::StatusOr<SwapResult> result);
  void FinishUnknown();
  absl::Status TimedOut() const;

  struct Silence {
    Duration pause{};
    TimePoint until = {};  // not probed before
  };

  // The ids of the voters whose replies fit.
  template <typename F>
  std::set<std::string> Ids(F fits) const;
  // The reply with the newest record among those that fit; null: none has a record.
  template <typename F>
  const VoteReply* Newest(F fits) const;
  bool AllAnswered() const;  // except voters that have exited
  // The voters of a chosen record that has been seen.
  void Adopt(const VoterSet& voters);
  // What the voters should be, after the probe.
  VoterGroup Group() const;

  const ProposerRules rules_;
  std::mt19937_64 random_;
  VoterSet voters_;
  int64_t counter_ = 0;  // the highest one that has been seen
  int64_t numbers_ = 0;
  std::optional<Prepared> prepared_;
  std::optional<CachedCharter> cached_;  // the newest one that was received or written
  // Number of kAsk in a row in which a quorum has answered, the newest ballot was the same, and no quorum had it. Counted over all calls,
  // because one may be too short for all of them.
  int asked_ = 0;
  Ballot asked_ballot_;
  // The acceptor of this process may not have accepted this process's newest proposal.
  bool behind_ = true;
  std::set<std::string> exited_;           // the ids of voters that have exited
  std::map<std::string, Silence> silent_;  // addresses that have not answered the last probe
  std::optional<Call> call_;

  // State of the current Step.
  TimePoint now_;
  ProposerEffects effects_;
};

}  // namespace ddprun
