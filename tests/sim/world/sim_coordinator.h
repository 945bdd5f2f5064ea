// The coordinator's process: the real Coordinator behind simulated connections, a clock and faults.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
  // Sends bytes to an agent. `last`: no message follows.
  using Send = std::function<void(const std::string& bytes, bool last)>;

  // Work done so far.
  struct Load {
    int64_t messages = 0;    // received and sent
    double machine_cpu = 0;  // CPU seconds of the coordinator and the codec; 0 while checked
  };

  SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts);
  SimCoordinator(const SimCoordinator&) = delete;
  SimCoordinator& operator=(const SimCoordinator&) = delete;
  ~SimCoordinator();

  static constexpr int kGonePort = 29501;  // wardens send "NODE TOKEN" here

  void Listen();
  ConnectionId Attach(Send send, bool in_process);
  void Receive(ConnectionId connection, const std::string& bytes);
  void Detach(ConnectionId connection, const std::string& reason);

  // An operator's request. False if there is no such node, or it cannot be drained.
  bool DrainHost(const std::string& host);
  void StopJob();
  // The launcher exits: closes the job and, once it is closed, kills this process after a delay.
  // `at_once`: dismisses all nodes without waiting until their workers have stopped.
  void Close(bool at_once);
  // SIGKILL, or the exit of its process.
  void Kill();
  // Stops the process. Messages and timers of that time are handled in order after Thaw. Calls nest.
  void Freeze();
  void Thaw();
  void ThawAll();  // undoes all nested Freeze calls

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_ > 0; }
  // Whether a stop of more than 1.5 leases ended less than a lease ago.
  bool has_slept() const;
  // Whether it has a job that is over.
  bool closed() const { return machine() != nullptr && machine()->state() == RoundMachine::State::kClosed; }
  const RoundMachine* machine() const;                      // null: no job
  const RoundRules* rules() const { return rules_.get(); }  // null: no job
  void RecordTo(StepSink sink) { coordinator_->RecordTo(std::move(sink)); }
  // False: does not check RoundRules, which takes more time than the coordinator itself.
  void set_checked(bool checked) { checked_ = checked; }
  const Load& load() const { return load_; }
  // Adds the counts of all its jobs.
  void AddCounts(SimResult& result) const;
  // Simulated time of the node's last message; none: never.
  std::optional<TimePoint> heard(const NodeId& node) const;

 private:
  class Peer;

  void ListenToWardens();
  void InProcess(std::function<void()> what);
  void OnMessage(ConnectionId id, const std::string& bytes);
  void OnLog(absl::string_view event, absl::string_view reason);
  void Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine);
  void Count(SimResult& result) const;

  SimJob* const job_;
  SimHost* const host_;
  const NodeFacts facts_;
  std::map<ConnectionId, std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<RoundRules> rules_;
  std::map<NodeId, TimePoint> heard_;
  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, SimSocket> sockets_;
  bool checked_ = true;
  Load load_;
  SimResult before_;  // counts of jobs that are forgotten
  bool alive_ = true;
  bool closing_ = false;
  bool said_farewell_ = false;
  int frozen_ = 0;
  TimePoint frozen_at_;
  TimePoint slept_until_;  // end of the last stop of more than 1.5 leases
  std::deque<std::function<void()>> held_;
};

}  // namespace ddprun::sim
