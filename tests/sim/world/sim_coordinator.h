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

// One life of it.
class SimCoordinator {
 public:
  using ConnectionId = uint64_t;
  // Bytes to an agent; `last`: nothing follows.
  using Send = std::function<void(const std::string& bytes, bool last)>;

  // What it has done so far.
  struct Load {
    int64_t messages = 0;    // that came and went
    double machine_cpu = 0;  // seconds of the coordinator and the codec; measured only if not checked
  };

  SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts);
  SimCoordinator(const SimCoordinator&) = delete;
  SimCoordinator& operator=(const SimCoordinator&) = delete;
  ~SimCoordinator();

  static constexpr int kGonePort = 29501;  // where wardens say "NODE TOKEN"

  void Listen();
  ConnectionId Attach(Send send, bool in_process);
  void Receive(ConnectionId connection, const std::string& bytes);
  void Detach(ConnectionId connection, const std::string& reason);

  // An operator's request. False if there is no such node, or it cannot be taken out.
  bool DrainHost(const std::string& host);
  void StopJob();
  // Its launcher ends: all are told, and those who do not go are cut off after a while.
  // `at_once`: without waiting until their workers have stopped.
  void Close(bool at_once);
  // SIGKILL, or the end of its process.
  void Kill();
  // It stands still; what comes meanwhile is handled afterwards, in order.
  void Freeze();
  void Thaw();
  void ThawAll();  // however often it was frozen

  bool alive() const { return alive_; }
  bool frozen() const { return frozen_ > 0; }
  // It has stood still for longer than its nodes' lease, less than a lease ago.
  bool has_slept() const;
  // It has a job that is over.
  bool closed() const { return machine() != nullptr && machine()->state() == RoundMachine::State::kClosed; }
  const RoundMachine* machine() const;                      // null: no job
  const RoundRules* rules() const { return rules_.get(); }  // null: no job
  void RecordTo(StepSink sink) { coordinator_->RecordTo(std::move(sink)); }
  // Without the rules, which take longer than what they look at.
  void set_checked(bool checked) { checked_ = checked; }
  const Load& load() const { return load_; }
  // Adds what happened in it.
  void AddCounts(SimResult& result) const;
  // When the node was last heard, in simulated time; none: never.
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
  SimResult before_;  // of jobs that are forgotten
  bool alive_ = true;
  bool closing_ = false;
  bool said_farewell_ = false;
  int frozen_ = 0;
  TimePoint frozen_at_;
  TimePoint slept_until_;  // the last time that was long
  std::deque<std::function<void()>> held_;
};

}  // namespace ddprun::sim
