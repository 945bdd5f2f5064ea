// The register of a job among its voters.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "proto/voters.pb.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/voters/acceptor.h"
#include "rendezvous/voters/founding.h"
#include "rendezvous/voters/proposer.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/vote_client.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

// Each process of the job has one. It is a voter if a set of voters includes it. A process that knows no voters learns them from
// a node of the job: Learn.
//   Threads: that of the timer.
class VoterRegister final : public CharterRegister {
 public:
  struct Parts {
    std::string run_id;
    Voter self;           // `id` is new
    bool founds = false;  // this process is the only voter of a new job, unless it learns that the job exists
    uint64_t seed = 0;
    std::unique_ptr<WakeTimer> timer;
    std::unique_ptr<VoteClient> client;
    // What this process knows if it leads the job; may be empty. See SwapWanted.
    struct Leading {
      Duration left{};  // zero: it does not lead
      std::vector<std::string> ended = {};
    };
    std::function<Leading()> leading;
    // The voters have changed, or have become known.
    std::function<void(const VoterSet& voters)> on_voters;
  };
  explicit VoterRegister(Parts parts);
  VoterRegister(const VoterRegister&) = delete;
  VoterRegister& operator=(const VoterRegister&) = delete;

  // Founds the register together with the processes at the other addresses; see Founding. Then voters() are known. At most once;
  // Parts::founds is false.
  void Found(const std::vector<std::string>& addresses, std::unique_ptr<WakeTimer> timer, Duration limit,
             std::function<void(absl::Status)> done);
  // Calls are carried out one at a time.
  void Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) override;
  void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
            Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) override;

  // The processes at these addresses should be the voters, the preferred ones first. The next swap changes the voters, and later
  // ones do if some have not answered.
  void SetCandidates(std::vector<std::string> addresses);
  // Takes note of voters that were chosen.
  void Learn(const VoterSet& voters);
  // Says to the process at this address, where the job's nodes look for the coordinator first, that the job exists. If that
  // process has just founded the same job, it gives that up.
  void Announce(const std::string& address);
  // The addresses of processes that can vote although they are no nodes: those among the voters, and those that have answered the last
  // Announce to them.
  std::vector<std::string> Witnesses() const;
  const VoterSet& voters() const { return proposer_.voters(); }
  // Answers a request to this process as a voter.
  //   Errors: kNotFound: it is about another job, or for a voter that has exited; kInvalidArgument: it is malformed.
  absl::StatusOr<proto::VoteReply> Answer(const proto::VoteRequest& request);

 private:
  struct Call {
    Duration limit{};
    TimePoint end = {};
    std::optional<SwapWanted> swap = {};  // nullopt: a read
    std::function<void(absl::StatusOr<SwapResult>)> done;
  };

  // The job that this process has founded exists already.
  void FoundElsewhere(const VoterSet& voters);
  void Add(Call call);
  void Wake();
  // Adds what this process knows as the leader.
  void Complete(SwapWanted& swap) const;
  // Steps the proposer, and carries out what follows from it.
  void Step(const ProposerEvent& event);
  void SetTimer();
  // The voters are changed again later.
  void DelayChange();

  Parts parts_;
  std::optional<Founding> founding_;  // set after Found until its end
  Acceptor acceptor_;
  Proposer proposer_;
  std::deque<Call> calls_;  // the first one may be in progress
  std::vector<std::string> candidates_;
  TimePoint next_change_;            // the voters are not changed before
  Duration change_pause_{};          // the last one
  std::optional<VoterSet> learnt_;   // while a call is in progress
  std::set<std::string> witnesses_;  // that have answered Announce
  bool founded_in_vain_ = false;     // the versions that this process knows are those of another register
  int64_t known_ = 0;                // number of the voters of the last on_voters
};

}  // namespace ddprun
