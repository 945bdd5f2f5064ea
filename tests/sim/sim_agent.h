// One life of one agent, simulated around the real AgentMachine and NodeFence: what launcher/agent does with
// its effects.
#pragma once

#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/job_rules.h"
#include "launcher/agent/agent_machine.h"
#include "launcher/agent/node_fence.h"
#include "rendezvous/core/round_events.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/sim_warden.h"

namespace ddprun::sim {

//   Checks: workers start only when none are left, Ready and the end of the agent mean that none are, the
//   agent ends
//           once, and as the coordinator's last word says.
class SimAgent {
 public:
  struct Place {
    SimJob* job = nullptr;
    SimHost* host = nullptr;
    const HostHabits* habits = nullptr;
    HostId coordinator_host = 0;
    SimCoordinator* local = nullptr;      // it is in the same process
    std::function<NodeId()> new_node_id;  // for each join
    std::function<int()> new_port;        // on this host
    std::function<void()> ended;          // the agent, by itself
    int nproc = 1;
    std::vector<std::string> expected_hosts = {};
  };

  explicit SimAgent(Place place);
  SimAgent(const SimAgent&) = delete;
  SimAgent& operator=(const SimAgent&) = delete;

  void Start();
  void Signal(int signo);
  // SIGKILL; the kernel hangs up, the warden kills the workers.
  void Kill();
  // SIGSTOP and SIGCONT; workers and warden run on.
  void Freeze() { frozen_ = true; }
  void Thaw();
  void KillWarden();
  // The connection to the coordinator is reset on both sides, by something between them. False: there is
  // none.
  bool ResetLink();
  void FailWorker(ExitInfo exit);
  // The host's power is gone, and everything with it.
  void Vanish();

  const SimHost& host() const { return *place_.host; }
  const NodeId& id() const { return id_; }  // of the newest join
  bool ended() const { return end_.has_value() || killed_; }
  bool frozen() const { return frozen_; }
  bool is_local() const { return place_.local != nullptr; }
  const SimWarden& warden() const { return warden_; }
  SimWarden& warden() { return warden_; }

 private:
  // Runs `what` in the agent, later if it is stopped, never if it has ended.
  void InAgent(std::function<void()> what);
  void Find(Duration limit, bool again);
  void Join();
  void OnMessage(const proto::CoordinatorMessage& message);
  void OnWorkerEnded(LocalRank rank, const ExitInfo& exit, bool consequence);
  // What the warden of a killed agent does when the workers are dead.
  void ReportGone();
  void Step(const AgentEvent& event);
  void Do(const AgentEffect& effect);
  void SetTimer();
  // The host's clock goes on while the host stands still.
  BootTime BootNow() const { return BootTime(place_.host->now().time_since_epoch()); }
  void Finished(const Finish& finish);
  JobRules Rules() const;

  const Place place_;
  Trace* const trace_;
  AgentMachine machine_;
  SimWarden warden_;
  std::shared_ptr<SimLink> link_;
  NodeId id_;
  bool frozen_ = false;
  bool killed_ = false;
  std::deque<std::function<void()>> held_;  // while frozen
  std::optional<EndReason> end_;
  bool decided_ = false;                // how it ends
  std::optional<Dismissal> dismissed_;  // the last word, if it was that which decided

  NodeFence fence_;
  Assignment assignment_;
  bool ordered_ = false;  // the workers were told to stop: their ends are our doing
  TimePoint started_at_;
  std::optional<int64_t> step_;
  std::vector<proto::Failure> failures_;  // of this round
};

}  // namespace ddprun::sim
