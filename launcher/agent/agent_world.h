// The interface between AgentDriver and its node: workers, stores, identities, links to the coordinator, and
// output for users. Agent implements AgentWorld with real processes; tests/sim implements it with simulated
// ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/assignment.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"
#include "base/worker_evidence.h"
#include "launcher/agent/agent_machine.h"
#include "os/boot_clock.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// Processes that have not exited within this time after SIGKILL are reported as unkillable.
inline constexpr Duration kKillLimit = seconds(10);

// The identity of a node. A node that rejoins gets a new identity.
struct NodeIdentity {
  std::string id;          // unique among all nodes of all jobs
  std::string gone_token;  // a secret: its holder may report that this node is gone
};

// The result of the search for a coordinator: a link that is not started; or that the job is over, so that there will be no
// coordinator; or an error.
using SearchResult = std::variant<std::unique_ptr<CoordinatorLink>, Dismissed, absl::Status>;

// The environment of an AgentDriver.
//   Order:   methods do not call the driver; results reach the driver later, as AgentEvents.
//   Threads: called on the driver's thread.
class AgentWorld {
 public:
  virtual ~AgentWorld() = default;

  // The time of the boot clock, which also advances while the machine is suspended.
  virtual BootTime BootNow() const = 0;
  virtual NodeIdentity NewIdentity() = 0;
  // Opens an empty worker store for the next round and returns its port.
  virtual absl::StatusOr<int> OfferStore() = 0;
  // The ids and tokens of nodes whose wardens have reported to the coordinator of this process that all processes have exited.
  virtual std::vector<std::pair<std::string, std::string>> GoneNodes() const { return {}; }
  // Searches for the coordinator for at most `limit`, then calls `done` once. Does not call `done` after OnFinish. Called only
  // to rejoin: the first link is an argument of AgentDriver::Join.
  virtual void FindCoordinator(Duration limit, std::function<void(SearchResult)> done) = 0;

  // --- Workers. WorkerEnded is reported for each worker that ends.

  // The workers in `keep` are not started. They are offered their places instead.
  virtual void StartWorkers(const Assignment& assignment, const std::set<LocalRank>& keep) = 0;
  virtual void SignalWorkers(int signo, const std::set<LocalRank>& spare) = 0;
  // Kills the workers and all their descendants, except the workers in `spare` and their descendants. WorkersGone is
  // reported within kKillLimit plus the time limit for reading the workers' last output.
  virtual void KillWorkers(const std::set<LocalRank>& spare) = 0;
  virtual void TellSurvivors(const ddprun::TellSurvivors& what) = 0;
  // Sets the time at which the workers are killed, even if the agent hangs. Fenced is reported when that
  // happens. nullopt: no deadline.
  virtual void FenceWorkers(std::optional<BootTime> deadline) = 0;
  // With `stop`, also tells the workers that do not use the socket, by signal and by file.
  virtual void AskForSnapshot(Round round, const std::optional<WorkerStop>& stop) = 0;
  // Adds to `heartbeat` the progress that the workers have reported.
  virtual void FillIn(proto::Heartbeat& heartbeat) const = 0;
  // How long this worker has waited for collective operations, since any time; nullopt: unknown. Does not block.
  virtual std::optional<Duration> Waited(LocalRank /*worker*/) const { return std::nullopt; }
  // The lowest of the steps that the workers have reported last in `round`; nullopt if there are no reports.
  virtual std::optional<int64_t> SlowestStep(Round round) const = 0;
  // The highest step that a worker has reported in `round`; 0 if there are no reports.
  virtual int64_t FurthestStep(Round round) const = 0;
  // Whether each worker's last report in `round` says that all steps are done.
  virtual bool SayFinished(Round round) const = 0;
  // Finds out what the workers do, within a few seconds, then calls `done` once. `missing`: what could not be collected, and what
  // would allow it; one line each. Does not call `done` after OnFinish.
  using EvidenceHandler =
      std::function<void(std::vector<WorkerEvidence> workers, std::vector<std::string> missing)>;
  virtual void CollectEvidence(EvidenceHandler done) = 0;
  // Collects the stacks of workers within a few seconds, then calls `done` once. Does not call `done` after OnFinish.
  using StacksHandler = std::function<void(proto::Stacks)>;
  virtual void CollectStacks(const proto::CollectStacks& /*order*/, StacksHandler done) { done({}); }
  // Signs of progress besides reports. Called once a second. Does not block.
  struct WorkerSigns {
    // The heartbeat files of these workers have changed since the last call.
    std::vector<LocalRank> touched = {};
    // The agent cannot pass on output, because its reader or a disk is slow.
    bool output_held = false;
  };
  virtual WorkerSigns Signs() { return {}; }
  // Finds out which workers have used processor time, have written, or have launched operations of NCCL since the last call, and calls
  // `done` with them, later. `done` may be called several times, or never. Does not call `done` after OnFinish. Returns false while the
  // call before has not been answered: nothing is known of the processor time and the output since then.
  virtual bool LookForActivity(std::function<void(std::vector<LocalRank>)> /*done*/) { return true; }
  // Whether LookForActivity can find any.
  virtual bool sees_activity() const { return false; }
  // Records that this worker has ended its round for the reason `why`, without being asked, as a failure of the worker.
  virtual void RecordParked(LocalRank local_rank, const std::string& why) = 0;
  // The failure of this worker, with the details that are known so far.
  //   REQUIRES: WorkerEnded was reported for this worker in this round, and the worker did not succeed; or RecordParked
  //             was called.
  virtual Failure FailureOf(LocalRank local_rank) const = 0;
  // All worker failures of this round, except those that the launcher caused.
  virtual std::vector<Failure> Failures() const = 0;

  // --- Output and observers

  // The coordinator has accepted `node`.
  virtual void OnWelcome(const NodeIdentity& /*node*/) {}
  // The node has no workers and waits for a round.
  virtual void OnWaiting() {}
  // `text`: what the node waits for, in one line for users. `start_in`: the maximum time until the round
  // starts; 0: unknown.
  virtual void OnWaitingFor(const std::string& text, Duration /*start_in*/) { Say(text); }
  // The first failure of a round is about to be sent to the coordinator.
  virtual void OnFailure() {}
  // The connection to the coordinator is closed; the search for a coordinator begins.
  virtual void OnSeeking() {}
  virtual void OnReport(const proto::JobReport& /*report*/) {}
  // The node is dismissed; the coordinator sends no more reports or orders.
  virtual void OnDismissed() {}
  // The coordinator has refused a message from this node about a past round. The message had no effect.
  virtual void OnRefused(const std::string& /*why*/) {}
  // Called after each step of the machine.
  virtual void OnStep(const AgentMachine& /*machine*/) {}
  virtual void ReportFailures() = 0;              // see the effect ReportFailures
  virtual void Say(const std::string& text) = 0;  // one line for users
  // The agent ends. Called once; no other call follows.
  virtual void OnFinish(const Finish& finish) = 0;
};

// Provides the worker stores. The agent decides when a store is opened; the implementation decides where.
class RoundStores {
 public:
  virtual ~RoundStores() = default;
  // Opens an empty, listening store for the next round and returns its port. Closes the previous store, whose
  // local workers have exited.
  //   Errors: kFailedPrecondition, kResourceExhausted: no port is available.
  virtual absl::StatusOr<int> Offer() = 0;
  // Closes the offered store, because the round uses a store on another node.
  virtual void Withdraw() = 0;
};

}  // namespace ddprun
