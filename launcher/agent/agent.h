// The agent of one node: AgentDriver with real workers, stores, connections and output.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_driver.h"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/agent/agent_world.h"
#include "launcher/agent/countdown.h"
#include "launcher/agent/failure_display.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"
#include "launcher/workers/local_workers.h"
#include "launcher/workers/worker_environment.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// Searches for the coordinator for at most `limit`, then calls `done` once. Does not call `done` before it returns or after
// the agent has finished.
using Relink = std::function<void(Duration limit, std::function<void(SearchResult)> done)>;

// Opens a connection to the coordinator for the warden, and calls `done` with the descriptor of the
// connection, which `done` borrows. Calls `done` at most once, neither before it returns nor after the agent
// has finished.
using OpenLine = std::function<void(std::function<void(int fd)> done)>;

//   Order:   call Start once, then OnSignal for each signal. The agent calls `finished` once, as its last
//            action.
//   Threads: the thread of `io`.
class Agent final : private AgentWorld {
 public:
  struct Parts {
    const LaunchConfig* config = nullptr;  // the first four members must outlive the agent
    AgentLog* log = nullptr;
    LogDirectory* log_directory = nullptr;
    RoundStores* stores = nullptr;
    WardenHandle warden;
    std::string host;  // short name of this node, shown to users
    // Address at which workers of other nodes reach this node; empty: the address that the coordinator sees.
    std::string address;
    Duration first_last_call{};                  // see JobRules
    Duration last_call{};                        // see JobRules
    Relink relink;                               // used when this node is cut off from its job
    OpenLine open_line = {};                     // empty: no connection for the warden
    std::vector<AgentObserver*> observers = {};  // must outlive the agent
    // Returns the address and interface at which other nodes reach this node. Called at each start of the
    // workers. If this function is empty, the address and interface are unknown.
    std::function<NodeNetwork()> network = {};
    // Whether the warden kills the workers before this node's lease expires; see node_fence.h. False in the
    // coordinator's process, because the agent and the coordinator fail together, unless the job has a register.
    bool leased = true;
    int coordinator_port = 0;  // as in JoiningNode
    // See AgentWorld::GoneNodes; empty: there are none.
    std::function<std::vector<std::pair<std::string, std::string>>()> gone_nodes = {};
    // Whether open_line is called again with each round. The warden of a leader reports to one of the other nodes.
    bool line_of_round = false;
    // How long the agent looks for a coordinator when it has lost its own; zero: a little longer than the lease.
    Duration seek_limit{};
    bool counts_down = false;  // whether to log the remaining time of the last call, for users at a terminal
  };

  Agent(boost::asio::io_context& io, Parts parts, std::function<void(int exit_code)> finished);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Joins the job at the other end of `link`.
  void Start(std::unique_ptr<CoordinatorLink> link);
  // Call for each signal of --signals-to-handle that this process receives.
  void OnSignal(int signo);
  // Call for each signal of --preempt-signal. No order: also before the coordinator has accepted this node.
  void OnNotice(const PreemptSignal& signal);
  // Call if the agent cannot continue. The agent stops its workers, then ends with the error `why`.
  void Break(const absl::Status& why);

 private:
  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  // AgentWorld:
  BootTime BootNow() const override { return BootClock::now(); }
  NodeIdentity NewIdentity() override;
  absl::StatusOr<int> OfferStore() override { return stores_.Offer(); }
  std::vector<std::pair<std::string, std::string>> GoneNodes() const override {
    return gone_nodes_ ? gone_nodes_() : std::vector<std::pair<std::string, std::string>>();
  }
  void FindCoordinator(Duration limit, std::function<void(SearchResult)> done) override {
    relink_(limit, std::move(done));
  }
  void StartWorkers(const Assignment& assignment, const std::set<LocalRank>& keep) override;
  void SignalWorkers(int signo, const std::set<LocalRank>& spare) override;
  void KillWorkers(const std::set<LocalRank>& spare) override;
  void TellSurvivors(const ddprun::TellSurvivors& what) override;
  void RecordParked(LocalRank local_rank, const std::string& why) override;
  void FenceWorkers(std::optional<BootTime> deadline) override { workers_.Fence(deadline); }
  void AskForSnapshot(Round round, const std::optional<WorkerStop>& stop) override {
    workers_.AskForSnapshot(round, stop);
  }
  void FillIn(proto::Heartbeat& heartbeat) const override { workers_.FillIn(heartbeat); }
  void CollectEvidence(EvidenceHandler done) override { workers_.CollectEvidence(std::move(done)); }
  void CollectStacks(const proto::CollectStacks& order, StacksHandler done) override {
    workers_.CollectStacks(order, std::move(done));
  }
  std::optional<Duration> Waited(LocalRank worker) const override { return workers_.Waited(worker); }
  WorkerSigns Signs() override { return workers_.Signs(); }
  bool LookForActivity(std::function<void(std::vector<LocalRank>)> done) override {
    return workers_.LookForActivity(std::move(done));
  }
  bool sees_activity() const override { return ProcShowsThisProcess(); }
  std::optional<int64_t> SlowestStep(Round round) const override { return workers_.SlowestStep(round); }
  int64_t FurthestStep(Round round) const override { return workers_.FurthestStep(round); }
  bool SayFinished(Round round) const override { return workers_.SayFinished(round); }
  Failure FailureOf(LocalRank local_rank) const override { return workers_.failures().Of(local_rank); }
  std::vector<Failure> Failures() const override { return workers_.failures().All(); }
  // Opens the connection on which the warden reports that all processes of the node have exited.
  void OpenLine();
  // Sets the warden's last words (see warden_protocol.h): if this agent dies, the warden kills the workers,
  // then notifies the coordinator.
  void OnWelcome(const NodeIdentity& node) override;
  void OnWaiting() override;
  void OnWaitingFor(const std::string& text, Duration start_in) override;
  void OnFailure() override;
  void OnSeeking() override;
  void OnReport(const proto::JobReport& report) override;
  void OnDismissed() override;
  void OnRefused(const std::string& why) override;
  void OnStep(const AgentMachine& machine) override;
  void ReportFailures() override;
  void Say(const std::string& text) override;
  void OnFinish(const Finish& finish) override;

  // Shows the reports that display_ keeps, after pending handlers have run. If a lookup of the host name is
  // in progress, shows the reports after the lookup. Does not block.
  void ShowLater();
  void LookUpHostName();
  const std::string& HostName() const { return full_host_.empty() ? host_ : full_host_; }
  // Ends the agent with the result in finish_.
  void End();
  // Writes the launcher's own error file (TORCHELASTIC_ERROR_FILE) if the agent ends with an error, as
  // torchrun does. Then calls `done` on the thread of `io`.
  void LeaveOwnError(std::function<void()> done);
  // Calls OnStopping on the observers, at most once per round.
  void ObserveStopping();
  template <typename F>
  void Observe(F call) const {
    for (AgentObserver* observer : observers_) call(*observer);
  }

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  RoundStores& stores_;
  const std::string host_;
  const Relink relink_;
  const ddprun::OpenLine open_line_;
  const bool line_of_round_;
  const std::function<std::vector<std::pair<std::string, std::string>>()> gone_nodes_;
  const std::vector<AgentObserver*> observers_;
  const std::function<NodeNetwork()> network_;
  const std::function<void(int)> finished_;
  LocalWorkers workers_;
  FailureDisplay display_;
  AgentDriver driver_;
  std::optional<Countdown> countdown_;
  NodeIdentity self_;      // of the latest join
  std::string full_host_;  // empty: unknown
  bool looking_up_ = false;
  bool stopping_ = false;         // OnStopping was called in this round
  std::optional<int> signo_;      // first signal to the launcher
  std::optional<Finish> finish_;  // set: the agent is ending
};

}  // namespace ddprun
