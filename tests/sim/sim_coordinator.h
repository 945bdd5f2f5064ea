// A RoundMachine with simulated connections, and the rules that must hold after each of its steps.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/core/round_machine.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/trace.h"

namespace ddprun::sim {

class SimCoordinator {
 public:
  // Where the bytes for a node go. `last`: nothing follows.
  using Send = std::function<void(const NodeId& node, std::string bytes, bool last)>;
  // True if workers of this node run.
  using HasWorkers = std::function<bool(const NodeId& node)>;

  SimCoordinator(SimClock* clock, Trace* trace, RoundPolicy policy, Send send, HasWorkers has_workers);

  // `bytes` is a serialized AgentMessage that arrived on the connection of `node`.
  void Receive(const NodeId& node, const std::string& bytes);
  void Lose(const NodeId& node, const std::string& reason);
  // Stands still until `until`: nothing is handled, then everything at once.
  void Stall(TimePoint until) { stalled_until_ = until; }
  bool stalled() const { return clock_->now() < stalled_until_; }
  TimePoint stalled_until() const { return stalled_until_; }

  const RoundMachine& machine() const { return machine_; }
  int64_t rounds_sealed() const { return rounds_sealed_; }

 private:
  void Step(const RoundEvent& event);
  void CheckStep(const RoundEvent& event, const RoundEffects& effects);
  void CheckSealed(const std::map<NodeId, Assignment>& sealed);
  void SetTimer();

  SimClock* const clock_;
  Trace* const trace_;
  RoundMachine machine_;
  const Send send_;
  const HasWorkers has_workers_;
  TimePoint stalled_until_;
  std::optional<TimePoint> timer_at_;

  // What the rules remember.
  Round last_round_{-1};
  int last_restarts_ = 0;
  Round charged_round_{-1};
  bool failure_told_ = false;  // in this round
  bool was_closed_ = false;
  int64_t rounds_sealed_ = 0;
  std::map<NodeId, TimePoint> last_heard_;  // of nodes that the machine knows
};

}  // namespace ddprun::sim
