// How several processes found the register of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/alive.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/vote_client.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

// Each of the founders asks all others who they are. The first one that knows all of them has founded the register: with all
// founders as voters. The others learn that from it, because they ask it, too.
//
// So a founder that was started again cannot found another register beside the first one: it would have to hear from all founders
// that they know of none. In return, all of them must run when the job starts.
//   Threads: that of the timer.
class Founding {
 public:
  // addresses: those of all founders, in the same order in each process, self.address included.
  //   client: must outlive this object.
  Founding(Voter self, const std::vector<std::string>& addresses, VoteClient* client,
           std::unique_ptr<WakeTimer> timer);
  Founding(const Founding&) = delete;
  Founding& operator=(const Founding&) = delete;

  // Calls `done` once, not within this call; it may destroy this object.
  //   Errors: kUnavailable: not all founders have answered within `limit`; names those that have not.
  void Start(Duration limit, std::function<void(absl::StatusOr<VoterSet>)> done);
  // The register exists, and has these voters.
  void Learn(const VoterSet& voters);

 private:
  struct Founder {
    Voter voter = {};  // without an id until it has answered
    absl::Status error = {};
  };

  void Ask(size_t founder);
  void Answered(size_t founder, const absl::StatusOr<VoteReply>& reply);
  void Wake();
  void Finish(absl::StatusOr<VoterSet> result);

  const Voter self_;
  std::vector<Founder> founders_;
  VoteClient& client_;
  const std::unique_ptr<WakeTimer> timer_;
  Duration limit_{};
  TimePoint end_ = {};
  std::function<void(absl::StatusOr<VoterSet>)> done_;
  Alive alive_;
};

}  // namespace ddprun
