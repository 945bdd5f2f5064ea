// What AgentDriver needs of its node: workers, stores, identities, a link to the coordinator, and output for users. Agent implements it with processes, tests/sim with simulated ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/assignment.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"
#include "launcher/agent/agent_machine.h"
#include "os/boot_clock.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// Processes that SIGKILL has not ended by then are reported as unkillable: KillWorkers is answered in time.
inline constexpr Duration kKillLimit = seconds(10);

// One life of a node: a node that joins again has a new identity.
struct NodeIdentity {
  std::string id;          // unique among all nodes of all jobs
  std::string gone_token;  // a secret: its holder may report that this node is gone
};

//   Order:   The driver calls these from within its own calls. None calls the driver from within; what comes of
//            a call reaches the driver later, as an AgentEvent.
//   Threads: the driver's.
class AgentWorld {
 public:
  virtual ~AgentWorld() = default;

  // The boot clock: it goes on while the machine is suspended.
  virtual BootTime BootNow() const = 0;
  virtual NodeIdentity NewIdentity() = 0;
  // Opens an empty worker store for the next round and returns its port.
  virtual absl::StatusOr<int> OfferStore() = 0;
  // Looks for the coordinator for `limit` at most and gives `done` a link to it, not started, or why there is none:
  // once, not after Finish. The first join does not ask: see AgentDriver::Join.
  virtual void FindCoordinator(
      Duration limit, std::function<void(absl::StatusOr<std::unique_ptr<CoordinatorLink>>)> done) = 0;

  // --- Workers. Their ends come as WorkerEnded.

  virtual void StartWorkers(const Assignment& assignment) = 0;
  virtual void SignalWorkers(int signo) = 0;
  // Answered by WorkersGone within kKillLimit.
  virtual void KillWorkers() = 0;
  // They are killed at `deadline`, whatever the agent does, and Fenced comes; none: they are not.
  virtual void FenceWorkers(std::optional<BootTime> deadline) = 0;
  virtual void AskForSnapshot(Round round) = 0;
  // How far they are, by their own reports.
  virtual void FillIn(proto::Heartbeat& heartbeat) const = 0;
  virtual int64_t FurthestStep(Round round) const = 0;
  // The failure of this worker, as far as it is known by now.
  //   REQUIRES: WorkerEnded came for it in this round, and it did not succeed.
  virtual Failure FailureOf(LocalRank local_rank) const = 0;
  // All failures of this round that are not the launcher's own doing.
  virtual std::vector<Failure> Failures() const = 0;

  // --- What people and observers are told

  // The coordinator has welcomed `node`.
  virtual void OnWelcome(const NodeIdentity& /*node*/) {}
  // The node has no workers and waits for a round.
  virtual void OnWaiting() {}
  // What the node waits for, in one line for people. The round starts within `start_in`; 0: not known.
  virtual void OnWaitingFor(const std::string& text, Duration /*start_in*/) { Say(text); }
  // The first failure of a round is being sent.
  virtual void OnFailure() {}
  // The connection is closed; a new one is looked for.
  virtual void OnSeeking() {}
  virtual void OnReport(const proto::JobReport& /*report*/) {}
  // No report and no order follows.
  virtual void OnDismissed() {}
  // A message from the coordinator that changes nothing here.
  virtual void OnRefused(const std::string& /*why*/) {}
  // After each step of the machine.
  virtual void OnStep(const AgentMachine& /*machine*/) {}
  virtual void ReportFailures() = 0;              // see the effect
  virtual void Say(const std::string& text) = 0;  // one line for people
  // The agent ends. Given once, last: no call follows.
  virtual void OnFinish(const Finish& finish) = 0;
};

// Where the worker store of a round comes from: the agent says when, main knows how.

class RoundStores {
 public:
  virtual ~RoundStores() = default;
  // An empty store, listening, for the next round; the one before it, whose local workers are gone, ends.
  // Returns its port.
  //   Errors: kFailedPrecondition, kResourceExhausted: no port to be had.
  virtual absl::StatusOr<int> Offer() = 0;
  // The round meets at another node's store.
  virtual void Withdraw() = 0;
};

}  // namespace ddprun
