// The shell around AgentMachine: turns its effects into messages, processes, timers and words, and the world
// into its events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/worker_env.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/round_stores.h"
#include "launcher/agent/worker_socket.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"
#include "launcher/process/process_client.h"
#include "launcher/report/failure_record.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

//   Order:   Start once; then OnSignal as signals come; `finished` is called once, after which there is
//   nothing left to do but to
//            destroy the agent.
//   Threads: that of `io`.
class Agent {
 public:
  struct Parts {
    const LaunchConfig* config = nullptr;  // all three outlive the agent
    const AgentLog* log = nullptr;
    RoundStores* stores = nullptr;
    WardenHandle warden;
    std::string host;     // short name of this node, for people
    std::string address;  // where other nodes' workers reach this one; empty: as the coordinator sees it
    Duration first_last_call{};
    Duration last_call{};
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
  struct Worker {
    LocalRank local_rank;
    pid_t pid = 0;
    std::string error_file;
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  void Join();
  void OnMessage(const proto::CoordinatorMessage& message);
  void OnWorkerEnded(ProcessClient::WorkerId id, const ExitInfo& exit);
  // What the worker last reported to the agent's socket, for people; empty if it never did.
  std::string ProgressOf(LocalRank local_rank) const;
  void Step(const AgentEvent& event);
  void SetTimer();
  // Files for the next start of the workers, one entry a worker; empty names where there are to be none, or
  // cannot be.
  std::vector<WorkerFiles> NewLogFiles();
  // Waits until all that the workers wrote has been passed on; they are gone, so that is soon.
  void DrainOutputs();
  // To where the launcher was told to leave its own error, as torchrun does.
  void PassOnRootCause() const;

  void Do(const StartWorkers& e);
  void Do(const SignalWorkers& e);
  void Do(const KillWorkers& e);
  void Do(const SendWorkersFailed& e);
  void Do(const SendWorkersSucceeded& e);
  void Do(const SendReady& e);
  void Do(const SendLeave& e);
  void Do(const ReportFailures& e);
  void Do(const Tell& e);
  void Do(const Finish& e);

  boost::asio::io_context& io_;
  const Parts parts_;
  const LaunchConfig& config_;
  const AgentLog& log_;
  const std::function<void(int)> finished_;
  const EnvVars environment_;
  AgentMachine machine_;
  Console console_;
  std::optional<LogLayout> logs_;                       // set by Start
  std::vector<std::unique_ptr<WorkerOutput>> outputs_;  // by local rank, of the workers that run, or ran last
  int undrained_ = 0;                                   // of outputs_
  ProcessClient processes_;
  std::unique_ptr<WorkerSocket> reports_;  // null: could not be opened
  std::unique_ptr<CoordinatorLink> link_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> timer_at_;

  Assignment assignment_;                              // of the workers that run, or ran last
  std::map<ProcessClient::WorkerId, Worker> workers_;  // not ended
  ProcessClient::WorkerId next_worker_ = 1;
  std::vector<FailureRecord> failures_;  // of this round, in the order noticed
};

}  // namespace ddprun
