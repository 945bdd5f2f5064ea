// Runs an AgentMachine: turns its effects into messages to the coordinator and calls to AgentWorld, turns the
// coordinator's messages into events, and renews the fence with each answered heartbeat. Shared by production
// and simulation, which differ in the timer, the links and the AgentWorld.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/standstill.h"
#include "base/time.h"
#include "base/wake_timer.h"
#include "base/worker_message.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/agent_world.h"
#include "launcher/agent/join_message.h"
#include "launcher/agent/node_fence.h"
#include "launcher/config/launch_config.h"
#include "launcher/progress/beat_table.h"
#include "launcher/progress/step_meter.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/client/coordinator_link.h"

namespace ddprun {

//   Order:   call Join once. Call Step for each event of the node, even before Join.
//   Threads: the thread of the timer and the links.
class AgentDriver {
 public:
  struct Parts {
    const LaunchConfig* config = nullptr;  // must outlive the driver
    AgentWorld* world = nullptr;           // must outlive the driver
    std::unique_ptr<WakeTimer> timer;
    JoiningNode node = {};  // identity and store port are set at each join
    // Whether the warden kills the workers before this node's lease expires; see node_fence.h. False in the
    // coordinator's process, because the agent and the coordinator fail together, unless the job has a register.
    bool leased = true;
    Duration seek_limit{};  // as in AgentPolicy; zero: its default
  };

  explicit AgentDriver(Parts parts);
  AgentDriver(const AgentDriver&) = delete;
  AgentDriver& operator=(const AgentDriver&) = delete;

  // Joins the job at the other end of `link`. REQUIRES: `link` is not started.
  void Join(std::unique_ptr<CoordinatorLink> link);
  void Step(const AgentEvent& event);
  // A worker has reported its progress in `round`. The driver tells the coordinator when workers make none (BeatTable), and how long
  // their steps take (StepMeter).
  void Reported(Round round, LocalRank worker, int64_t step, WorkerPhase phase);
  // The fence has fired; see Fenced.
  void FenceFired() { Step(Fenced{.by_lead = fence_.bound_by_lead()}); }

  const AgentMachine& machine() const { return machine_; }
  // Null before Join and during the search for the coordinator.
  CoordinatorLink* link() { return link_.get(); }

 private:
  void OnMessage(const proto::CoordinatorMessage& message);
  void SetTimer();
  void OnTimer();
  // Whether workers that make no progress are to be found.
  bool judges() const { return config_.rules.hang_timeout != HangTimeout::Off(); }
  // Takes signs of progress other than reports, once a second.
  void LookAround();
  // Looks at the workers that run, and tells the coordinator if their level has changed.
  void Look();
  void SendStepTimes();
  void CollectEvidence(const proto::CollectEvidence& order);
  // Drops `message` if the join has not been sent yet.
  void Send(const proto::AgentMessage& message);

  void Do(const StartWorkers& e);
  void Do(const SignalWorkers& e);
  void Do(const KillWorkers& e);
  void Do(const TellSurvivors& e);
  void Do(const AskForSnapshot& e);
  void Do(const SendWorkersFailed& e);
  void Do(const SendWorkersSucceeded& e);
  void Do(const SendReady& e);
  void Do(const SendSnapshotTaken& e);
  void Do(const SendPreempted& e);
  void Do(const SendLeave& e);
  void Do(const Rejoin& e);
  void Do(const ReportFailures& e);
  void Do(const Tell& e);
  void Do(const Finish& e);

  const LaunchConfig& config_;
  AgentWorld& world_;
  const std::unique_ptr<WakeTimer> timer_;
  JoiningNode node_;  // of the latest join
  AgentMachine machine_;
  NodeFence fence_;
  std::unique_ptr<CoordinatorLink> link_;
  // The previous link, which is closed. Kept until the next rejoin, because the link may be calling this
  // object or may still be sending messages.
  std::unique_ptr<CoordinatorLink> old_link_;
  bool joined_ = false;  // the join was sent on link_
  // The workers of the last round.
  struct LastWorkers {
    Assignment assignment;
    TimePoint started_at;
    std::optional<TimePoint> gone_at = {};
  };
  std::optional<LastWorkers> last_;
  std::optional<TimePoint> timer_at_;
  BeatTable beats_;
  StepMeter meter_;
  bool watching_ = false;  // the workers of last_ run
  TimePoint looked_at_;
  std::optional<TimePoint> look_at_;    // the next look; nullopt: none is necessary
  NodeStandstill told_;                 // what the coordinator knows
  std::optional<absl::Status> broken_;  // an error during the current Step
};

}  // namespace ddprun
