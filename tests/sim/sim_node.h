// One life of one agent with its workers and its connection, simulated around the real AgentMachine.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "launcher/agent/agent_machine.h"
#include "rendezvous/core/round_events.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

// How the workers of a node behave; drawn anew for each round.
struct WorkerHabits {
  double fails = 0;    // chance that one ends badly
  double deaf = 0;     // chance that one does not heed SIGTERM
  Duration longest{};  // a worker runs at most that long by itself
};

// What is planned for a node refers to it by this, so that nothing happens to a node that is gone.
class SimNode {
 public:
  struct Outside {
    std::function<void(const NodeId& node, std::string bytes)> send;  // to the coordinator
    std::function<void(const NodeId& node)> hang_up;                  // the agent has ended
    std::function<WorkerHabits()> habits;
  };

  SimNode(NodeInfo info, Duration lease, SimClock* clock, Trace* trace, Random* random, Outside outside);
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  void Join();
  void Receive(const std::string& bytes);  // a serialized CoordinatorMessage
  void LoseCoordinator(const std::string& reason);
  void Signal(int signo) { Step(SignalReceived{signo}); }
  // SIGKILL of the agent: its workers go with it.
  void Kill();
  // SIGSTOP and SIGCONT of the agent; its workers run on.
  void Freeze() { frozen_ = true; }
  void Thaw();

  const NodeId& id() const { return info_.id; }
  bool ended() const { return exit_code_.has_value() || killed_; }
  bool killed() const { return killed_; }
  std::optional<int> exit_code() const { return exit_code_; }
  int workers() const { return static_cast<int>(workers_.size()); }
  bool running() const { return machine_.state() == AgentMachine::State::kRunning; }

 private:
  struct Worker {
    uint64_t life;  // tells a worker from its successor of the same rank
    bool deaf;
  };

  void Step(const AgentEvent& event);
  void Do(const AgentEffect& effect);
  void StartAll(const Assignment& assignment);
  void End(LocalRank rank, uint64_t life, ExitInfo exit);
  void Heartbeat();
  void SetTimer();
  // Runs `what` in the agent, later if it is frozen, never if it has ended.
  void InAgent(std::function<void()> what);
  void Plan(Duration after, std::function<void()> what);

  const NodeInfo info_;
  const Duration lease_;
  SimClock* const clock_;
  Trace* const trace_;
  Random* const random_;
  const Outside outside_;
  AgentMachine machine_;
  std::map<LocalRank, Worker> workers_;
  uint64_t next_life_ = 0;
  int next_port_ = 1000;
  bool frozen_ = false;
  bool killed_ = false;
  std::deque<std::function<void()>> held_;  // while frozen
  std::optional<int> exit_code_;
};

}  // namespace ddprun::sim
