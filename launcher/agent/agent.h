// The shell around AgentMachine: turns its effects into messages, processes, timers and words, and the world
// into its events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/agent/failure_display.h"
#include "launcher/agent/join_message.h"
#include "launcher/agent/local_workers.h"
#include "launcher/agent/node_fence.h"
#include "launcher/agent/node_network.h"
#include "launcher/agent/round_stores.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/warden.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

// Looks for the coordinator for `limit` at most and gives `done` a new link to it, not started, or why there
// is none: once, never from within, and not after the agent has finished.
using Relink = std::function<void(
    Duration limit, std::function<void(absl::StatusOr<std::unique_ptr<CoordinatorLink>>)> done)>;

// Opens a connection to the coordinator for the warden, and gives `done` its descriptor, borrowed: at most
// once, never from within, and not after the agent has finished.
using OpenLine = std::function<void(std::function<void(int fd)> done)>;

//   Order:   Start once; then OnSignal as signals come; `finished` comes once and last.
//   Threads: that of `io`.
class Agent {
 public:
  struct Parts {
    const LaunchConfig* config = nullptr;  // all three outlive the agent
    AgentLog* log = nullptr;
    RoundStores* stores = nullptr;
    WardenHandle warden;
    std::string host;     // short name of this node, for people
    std::string address;  // where other nodes' workers reach this one; empty: as the coordinator sees it
    Duration first_last_call{};
    Duration last_call{};
    Relink relink;                               // for a node that is cut off from its job
    OpenLine open_line = {};                     // empty: the warden has none
    std::vector<AgentObserver*> observers = {};  // outlive the agent
    // How other nodes reach this one, asked at each start of workers; empty: unknown.
    std::function<NodeNetwork()> network = {};
    bool leased = true;  // false in the coordinator's own process: it cannot be lost alone
  };

  Agent(boost::asio::io_context& io, Parts parts, std::function<void(int exit_code)> finished);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Joins the job at the other end of `link`.
  void Start(std::unique_ptr<CoordinatorLink> link);
  // SIGTERM and its like, sent to this process.
  void OnSignal(int signo);
  // The agent cannot go on; it ends its workers and then itself.
  void Break(const absl::Status& why);

 private:
  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  // Joins the job, as a new node, at the other end of `link`.
  void JoinBy(std::unique_ptr<CoordinatorLink> link);
  // Lets the warden tell the coordinator when this agent has died and nothing is left of its workers.
  void PrepareLastWords();
  void OnMessage(const proto::CoordinatorMessage& message);
  void Step(const AgentEvent& event);
  void SetTimer();
  // What the display has kept, as soon as there is nothing else to do and the name of this host is known.
  void ShowLater();
  void LookUpHostName();
  const std::string& HostName() const { return full_host_.empty() ? node_.host : full_host_; }
  // As finish_ says.
  void End();
  // To where the launcher was told to leave its own error, as torchrun does; then `done`, from `io`.
  void LeaveOwnError(std::function<void()> done);
  // Once: the workers of this round are told to end.
  void ObserveStopping();
  template <typename F>
  void Observe(F call) const {
    for (AgentObserver* observer : observers_) call(*observer);
  }

  void Do(const StartWorkers& e);
  void Do(const SignalWorkers& e);
  void Do(const KillWorkers& e);
  void Do(const AskForSnapshot& e);
  void Do(const SendWorkersFailed& e);
  void Do(const SendWorkersSucceeded& e);
  void Do(const SendReady& e);
  void Do(const SendSnapshotTaken& e);
  void Do(const SendLeave& e);
  void Do(const Rejoin& e);
  void Do(const ReportFailures& e);
  void Do(const Tell& e);
  void Do(const Finish& e);

  boost::asio::io_context& io_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  RoundStores& stores_;
  JoiningNode node_;  // this life of it
  const Relink relink_;
  const OpenLine open_line_;
  const std::vector<AgentObserver*> observers_;
  const std::function<NodeNetwork()> network_;
  const std::function<void(int)> finished_;
  AgentMachine machine_;
  LocalWorkers workers_;
  NodeFence fence_;
  FailureDisplay display_;
  std::unique_ptr<CoordinatorLink> link_;      // null: before Start, and while a new one is looked for
  std::unique_ptr<CoordinatorLink> old_link_;  // closed; it may take a moment to end
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> timer_at_;
  std::string full_host_;  // empty: not known yet
  bool looking_up_ = false;
  bool stopping_ = false;         // the observers know
  std::optional<int> signo_;      // the first that was sent to the launcher
  std::optional<Finish> finish_;  // nothing comes after it
};

}  // namespace ddprun
