// The one interpreter of AgentMachine: its effects become messages to the coordinator and orders to the workers,
// the coordinator's messages become its events, and the workers' fence follows the heartbeats. Production and
// the simulation share it; they differ in the timer, the links and the AgentWorld.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "base/wake_timer.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/agent_world.h"
#include "launcher/agent/join_message.h"
#include "launcher/agent/node_fence.h"
#include "launcher/config/launch_config.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

//   Order:   Join once; Step as things happen on the node, before Join as well.
//   Threads: that of the timer and the links.
class AgentDriver {
 public:
  struct Parts {
    const LaunchConfig* config = nullptr;  // outlives the driver
    AgentWorld* world = nullptr;           // likewise
    std::unique_ptr<WakeTimer> timer;
    JoiningNode node = {};  // without what NewIdentity and OfferStore say
    bool leased = true;     // false in the coordinator's own process: it cannot be lost alone
  };

  explicit AgentDriver(Parts parts);
  AgentDriver(const AgentDriver&) = delete;
  AgentDriver& operator=(const AgentDriver&) = delete;

  // Joins the job at the other end of `link`, which is not started.
  void Join(std::unique_ptr<CoordinatorLink> link);
  void Step(const AgentEvent& event);

  const AgentMachine& machine() const { return machine_; }
  // Null: before Join, and while the coordinator is looked for.
  CoordinatorLink* link() { return link_.get(); }

 private:
  void OnMessage(const proto::CoordinatorMessage& message);
  void SetTimer();
  // Nothing is sent before the join.
  void Send(const proto::AgentMessage& message);

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

  const LaunchConfig& config_;
  AgentWorld& world_;
  const std::unique_ptr<WakeTimer> timer_;
  JoiningNode node_;  // this life of it
  AgentMachine machine_;
  NodeFence fence_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<CoordinatorLink> old_link_;  // closed; it may be calling us, or take a moment to end
  bool joined_ = false;                        // over link_
  std::optional<TimePoint> timer_at_;
  std::optional<absl::Status> broken_;  // in the Step that is going on
};

}  // namespace ddprun
