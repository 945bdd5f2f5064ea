// The coordinator's process: the real Coordinator with a simulated clock, simulated connections and faults.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/core/round_machine.h"
#include "tests/sim/world/round_rules.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_result.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

// One run of the coordinator's process.
class SimCoordinator {
 public:
  using ConnectionId = uint64_t;
  // Sends bytes to an agent. `last`: whether this is the last message to the agent.
  using Send = std::function<void(const std::string& bytes, bool last)>;

  // Work done so far.
  struct Load {
    int64_t messages = 0;  // received and sent
    // CPU seconds of the coordinator and the codec. Measured only after set_checked(false).
    double machine_cpu = 0;
  };

  // Observes the messages to agents before they are sent.
  using Observer = std::function<void(const proto::CoordinatorMessage&)>;
  // A coordinator of a job with a register listens on a port of its own.
  struct Registered {
    int port = 0;  // and the three ports that follow it
    Observer observe;
  };

  SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts, std::optional<Registered> registered = {});
  SimCoordinator(const SimCoordinator&) = delete;
  SimCoordinator& operator=(const SimCoordinator&) = delete;
  ~SimCoordinator();

  // Port for the wardens of killed agents. Each warden sends "NODE TOKEN" when its workers are dead.
  static constexpr int kGonePort = 29501;
  // Ports relative to that of a coordinator with a register.
  static constexpr int kGonePortOffset = 1;
  // Sends "yes" to a process that asks whether it has the job, "at HOST:PORT" if another one has, or "no".
  static constexpr int kJobPortOffset = 2;
  // Of the process as a voter; see sim_votes.h.
  static constexpr int kVotePortOffset = 3;

  void Listen();
  // Another process leads, at this HOST:PORT. As CoordinatorHost::SetLeader.
  void SetLeader(std::string address) { leader_ = std::move(address); }
  // `end`: called when the coordinator ends the connection; only with a register.
  // `address`: of the agent.
  ConnectionId Attach(Send send, bool in_process, std::function<void()> end = {}, std::string address = "");
  void Receive(ConnectionId connection, const std::string& bytes);
  void Detach(ConnectionId connection, const std::string& reason);

  // Drains the node on `host`, as an operator requests. Returns false if the request has no effect.
  bool DrainHost(const std::string& host);
  // Gives the node on `host` notice, as an operator requests. Returns false if the request has no effect.
  bool PreemptHost(const std::string& host, Duration left, std::optional<Duration> back_in);
  void StopJob();
  // Called when the launcher is about to exit. Closes the job, and ends this process a few seconds after the
  // job is closed. `at_once`: dismisses all nodes without waiting for their workers to stop.
  void Close(bool at_once);
  // Ends the process, by SIGKILL or because it exits.
  void Kill();
  // Stops the process. Thaw handles, in order, the messages and timers that are due in the meantime. Calls
  // nest.
  void Freeze();
  void Thaw();
  void ThawAll();  // undoes all nested Freeze calls

  // With a register. Ends the process by itself when the agents of other processes have left; calls `done` instead of Kill.
  void CloseRegistered(bool at_once, std::function<void()> done);
  // This process begins to lead. RoundRules hold for a new job only: they know nothing of an earlier coordinator.
  void BeginRules();
  Coordinator& real() { return *coordinator_; }
  // Runs `what` in the process. Defers it while the process is stopped, and drops it after the process has ended.
  void InProcess(std::function<void()> what);
  int port() const { return port_; }

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_ > 0; }
  // Whether a stop of more than 1.5 leases ended less than a lease ago.
  bool has_slept() const;
  // Whether the process has a job and that job is closed.
  bool closed() const { return machine() != nullptr && machine()->state() == RoundMachine::State::kClosed; }
  const RoundMachine* machine() const;                      // null: no job
  const RoundRules* rules() const { return rules_.get(); }  // null: no job
  void RecordTo(StepSink sink) { coordinator_->RecordTo(std::move(sink)); }
  // `false` turns off RoundRules, whose checks take more time than the coordinator itself.
  void set_checked(bool checked) { checked_ = checked; }
  const Load& load() const { return load_; }
  // Adds the counts of all jobs of this process to `result`.
  void AddCounts(SimResult& result) const;
  // Simulated time of the node's last message; nullopt if there was none.
  std::optional<TimePoint> heard(const NodeId& node) const;

 private:
  class Peer;

  void ListenToWardens();
  void ListenForJob();
  void OnMessage(ConnectionId id, const std::string& bytes);
  void OnLog(absl::string_view event, absl::string_view reason);
  void Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine);
  void Count(SimResult& result) const;

  SimJob* const job_;
  SimHost* const host_;
  const NodeFacts facts_;
  const std::optional<Registered> registered_;
  const int port_;
  std::function<void()> closed_;  // of CloseRegistered
  std::string leader_;            // of SetLeader
  std::map<ConnectionId, std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<RoundRules> rules_;
  bool resumed_ = false;  // the job has an earlier coordinator
  std::map<NodeId, TimePoint> heard_;
  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, SimSocket> sockets_;
  bool checked_ = true;
  Load load_;
  SimResult before_;  // counts of forgotten jobs
  bool alive_ = true;
  bool closing_ = false;
  bool said_farewell_ = false;
  int frozen_ = 0;
  TimePoint frozen_at_;
  TimePoint slept_until_;  // end of the last stop of more than 1.5 leases
  std::deque<std::function<void()>> held_;
};

}  // namespace ddprun::sim
