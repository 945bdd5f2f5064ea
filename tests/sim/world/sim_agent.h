// One life of one agent: the real AgentDriver with simulated workers, clocks and connections, and faults.
#pragma once

#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "launcher/agent/agent_driver.h"
#include "launcher/agent/agent_world.h"
#include "launcher/config/launch_config.h"
#include "launcher/workers/node_failures.h"
#include "rendezvous/core/round_events.h"
#include "tests/sim/world/sim_link.h"
#include "tests/sim/world/sim_timer.h"
#include "tests/sim/world/sim_warden.h"

namespace ddprun::sim {

//   Checks: workers start only when none are left, Ready and the end of the agent mean that none are, and the
//   agent ends once, as the coordinator's last message says.
class SimAgent final : private AgentWorld {
 public:
  struct Place {
    SimJob* job = nullptr;
    SimHost* host = nullptr;
    const HostHabits* habits = nullptr;
    HostId coordinator_host = 0;
    SimCoordinator* local = nullptr;           // it is in the same process
    std::function<std::string()> new_node_id;  // for each join
    std::function<int()> new_port;             // on this host
    // The agent, by itself, once it has written its last output.
    std::function<void(bool in_a_hurry)> ended;
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
  const std::string& id() const { return id_; }  // of the newest join
  bool ended() const { return end_.has_value() || killed_; }
  bool frozen() const { return frozen_; }
  // Set: no round of the job follows, so no node waits for the workers here. They have their grace period until then.
  std::optional<TimePoint> job_over_until() const { return job_over_until_; }
  bool is_local() const { return place_.local != nullptr; }
  const SimWarden& warden() const { return warden_; }
  SimWarden& warden() { return warden_; }

 private:
  // AgentWorld:
  // The host's clock goes on while the host stands still.
  BootTime BootNow() const override { return BootTime(place_.host->now().time_since_epoch()); }
  NodeIdentity NewIdentity() override;
  absl::StatusOr<int> OfferStore() override { return place_.new_port(); }
  void FindCoordinator(Duration limit,
                       std::function<void(absl::StatusOr<std::unique_ptr<CoordinatorLink>>)> done) override {
    Find(limit, /*once=*/true, std::move(done));
  }
  void StartWorkers(const Assignment& assignment) override;
  void SignalWorkers(int signo) override;
  void KillWorkers() override;
  void FenceWorkers(std::optional<BootTime> deadline) override;
  void AskForSnapshot(Round round) override;
  void FillIn(proto::Heartbeat& heartbeat) const override;
  int64_t FurthestStep(Round) const override { return step_.value_or(0); }
  Failure FailureOf(LocalRank local_rank) const override;
  std::vector<Failure> Failures() const override;
  void ReportFailures() override {}
  void Say(const std::string& text) override { Trace(absl::StrCat(id_, ": ", text)); }
  void OnFinish(const Finish& finish) override;

  // Runs `what` in the agent, later if it is stopped, never if it has ended.
  void InAgent(std::function<void()> what);
  void Find(Duration limit, bool once,
            std::function<void(absl::StatusOr<std::unique_ptr<CoordinatorLink>>)> done);
  // What a message of the coordinator must not say.
  void Check(const proto::CoordinatorMessage& message);
  void OnWorkerEnded(LocalRank rank, const ExitInfo& exit, bool consequence);
  // What the warden of a killed agent does when the workers are dead.
  void ReportGone();
  void Trace(const std::string& text) { trace_->Line(place_.job->clock->now(), text); }
  void Detail(const proto::AgentMessage& message);
  void Detail(const std::string& text) { trace_->Detail(place_.job->clock->now(), text); }
  void Broken(const std::string& rule) const { trace_->Broken(place_.job->clock->now(), rule); }

  const Place place_;
  sim::Trace* const trace_;
  const LaunchConfig config_;
  Random random_;
  AgentDriver driver_;
  SimWarden warden_;
  std::unique_ptr<SimLink> found_;  // while the coordinator is looked for
  std::string id_;
  bool frozen_ = false;
  bool killed_ = false;
  std::deque<std::function<void()>> held_;  // while frozen
  std::optional<EndReason> end_;
  bool decided_ = false;                // how it ends
  std::optional<Dismissal> dismissed_;  // the last message, if it was that which decided
  int signals_ = 0;
  std::optional<TimePoint> job_over_until_;

  Assignment assignment_;
  bool fenced_ = false;                  // the fence has killed the workers of this start
  std::optional<int> last_signal_sent_;  // the last signal that the workers of this start were sent
  TimePoint started_at_;
  std::optional<int64_t> step_;
  NodeFailures failures_{place_.host->name(), "default"};
};

}  // namespace ddprun::sim
