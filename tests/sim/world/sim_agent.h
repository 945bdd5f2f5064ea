// One agent process: the real AgentDriver with simulated workers, clock and connections, and with faults.
#pragma once

#include <csignal>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/failure.h"
#include "launcher/agent/agent_driver.h"
#include "launcher/agent/agent_world.h"
#include "launcher/config/launch_config.h"
#include "launcher/workers/node_failures.h"
#include "rendezvous/core/round_events.h"
#include "tests/sim/world/sim_link.h"
#include "tests/sim/world/sim_registered_job.h"
#include "tests/sim/world/sim_timer.h"
#include "tests/sim/world/sim_warden.h"

namespace ddprun::sim {

// Checks that workers start only when all others have ended or parked, that this holds when the agent sends Ready, that
// none are alive when the agent exits, that only workers of the round before take part in a round without a start, that a
// worker which has parked is killed only if the node leaves its place in the job, and that a dismissed agent exits for the
// reason in the Dismiss.
//
// After a notice of pre-emption, checks that the agent starts workers only if it has told the coordinator, that it does not
// join again, and that at the end of the notice the agent has exited and no worker runs. The notice begins when the agent
// gets it: a stopped agent and a suspended host get it when they continue. An agent or a host that continues after the end,
// or just before, has kWakeUp for this.
class SimAgent final : private AgentWorld {
 public:
  struct Place {
    SimJob* job = nullptr;
    SimHost* host = nullptr;
    HostHabits* habits = nullptr;
    HostId coordinator_host = 0;
    SimCoordinator* local = nullptr;           // the coordinator in this process; null: it is elsewhere
    SimRegisteredJob* registered = nullptr;    // null: the job has no register
    std::function<std::string()> new_node_id;  // called for each join
    std::function<int()> new_port;             // returns a free port of the host
    // Called when the agent exits by itself, after its last output. `in_a_hurry`: the agent got more than one
    // signal.
    std::function<void(bool in_a_hurry)> ended;
    int nproc = 1;
    std::vector<std::string> expected_hosts = {};
  };

  explicit SimAgent(Place place);
  SimAgent(const SimAgent&) = delete;
  SimAgent& operator=(const SimAgent&) = delete;

  void Start();
  void Signal(int signo);
  // A signal of --preempt-signal, of which `left` is the time.
  void GiveNotice(Duration left);
  // SIGKILL. The kernel closes the agent's connections; the warden kills the workers.
  void Kill();
  // SIGSTOP and SIGCONT. Workers and warden keep running.
  void Freeze() { frozen_ = true; }
  void Thaw();
  void KillWarden();
  // Resets the connection to the coordinator on both sides, as a middlebox does. Returns false if the agent
  // is not connected.
  bool ResetLink();
  void FailWorker(ExitInfo exit);
  // Ends a worker that has parked. Returns false if there is none.
  bool FailParked();
  // The host loses power: agent, warden and workers stop without sending a message.
  void Vanish();

  const SimHost& host() const { return *place_.host; }
  const std::string& id() const { return id_; }  // the node id of the newest join
  bool ended() const { return end_.has_value() || killed_; }
  bool frozen() const { return frozen_; }
  // End of the workers' grace period after the end of the job. Until then workers may run, since no other
  // node waits for them. nullopt before the end of the job.
  std::optional<TimePoint> job_over_until() const { return job_over_until_; }
  SimRegisteredJob* registered() const { return place_.registered; }
  bool is_local() const { return place_.local != nullptr; }
  const SimWarden& warden() const { return warden_; }
  SimWarden& warden() { return warden_; }

 private:
  // AgentWorld:
  // The host's clock advances while the host is suspended.
  BootTime BootNow() const override { return BootTime(place_.host->now().time_since_epoch()); }
  NodeIdentity NewIdentity() override;
  absl::StatusOr<int> OfferStore() override { return place_.new_port(); }
  void FindCoordinator(Duration limit, std::function<void(SearchResult)> done) override {
    Find(limit, /*once=*/true, std::move(done));
  }
  void StartWorkers(const Assignment& assignment, const std::set<LocalRank>& keep) override;
  void SignalWorkers(int signo, const std::set<LocalRank>& spare) override;
  void KillWorkers(const std::set<LocalRank>& spare) override;
  void TellSurvivors(const ddprun::TellSurvivors& what) override;
  void RecordParked(LocalRank local_rank, const std::string& why) override;
  void FenceWorkers(std::optional<BootTime> deadline) override;
  void AskForSnapshot(Round round, const std::optional<WorkerStop>& stop) override;
  void FillIn(proto::Heartbeat& heartbeat) const override;
  void CollectEvidence(EvidenceHandler done) override;
  std::optional<Duration> Waited(LocalRank) const override {
    return warden_.workers() == nullptr ? std::nullopt : std::optional(warden_.workers()->waited());
  }
  std::optional<int64_t> SlowestStep(Round) const override { return step_; }
  int64_t FurthestStep(Round) const override { return step_.value_or(0); }
  bool SayFinished(Round) const override {
    const Settings& s = *place_.job->settings;
    return s.plain == 0 && step_ >= s.total_steps;
  }
  Failure FailureOf(LocalRank local_rank) const override;
  std::vector<Failure> Failures() const override;
  void ReportFailures() override {}
  void Say(const std::string& text) override { Trace(absl::StrCat(id_, ": ", text)); }
  void OnFinish(const Finish& finish) override;

  // Runs `what` in the agent. Defers the call while the agent is stopped, and drops it after the agent has
  // exited.
  void InAgent(std::function<void()> what);
  void Find(Duration limit, bool once, std::function<void(SearchResult)> done);
  std::unique_ptr<SimLink> MakeLink(SimCoordinator* local, HostId host, int port);
  // Checks a message from the coordinator.
  void Check(const proto::CoordinatorMessage& message);
  // Observes a message to the coordinator.
  void Sent(const proto::AgentMessage& message);
  // The agent gets to know that the node goes away after `left`.
  void NoteNotice(Duration left);
  void CheckNotice();
  // The agent is about to kill its workers but those to spare.
  void CheckGrace(const std::set<LocalRank>& spare) const;
  void OnWorkerEnded(LocalRank rank, const ExitInfo& exit, bool consequence);
  // All workers of the node have reported this step.
  void Reported(Round round, int64_t step);
  void OnParked(Round round, LocalRank rank, const std::string& why);
  // Reports to the coordinator, as the warden of the killed agent, that the workers are dead.
  void ReportGone();
  void Trace(const std::string& text) { trace_->Line(place_.job->clock->now(), text); }
  void Detail(const std::string& text) { trace_->Detail(place_.job->clock->now(), text); }
  void Broken(const std::string& rule) const { trace_->Broken(place_.job->clock->now(), rule); }

  const Place place_;
  sim::Trace* const trace_;
  const LaunchConfig config_;
  Random random_;
  Random evidence_random_;
  AgentDriver driver_;
  SimWarden warden_;
  std::unique_ptr<SimLink> found_;  // not null during a search for the coordinator
  std::string id_;
  bool frozen_ = false;
  bool killed_ = false;
  std::deque<std::function<void()>> held_;  // calls deferred while frozen
  TimePoint woken_at_;                      // when the agent was continued or killed; of the simulated clock
  std::optional<EndReason> end_;
  bool decided_ = false;                // the reason for the agent's exit is known
  std::optional<Dismissal> dismissed_;  // set if that reason is a Dismiss
  int signals_ = 0;
  std::optional<TimePoint> notice_end_;  // of the host's clock
  bool told_of_notice_ = false;          // the agent has told the coordinator, or was told by it
  std::optional<TimePoint> job_over_until_;

  Assignment assignment_;
  bool fenced_ = false;                  // the fence has killed the workers of this round
  bool evicted_ = false;                 // the coordinator has taken the node out of this round
  std::optional<TimePoint> stop_sent_;   // when the workers of this round got their newest signal
  std::optional<int> last_signal_sent_;  // to the workers of this round
  TimePoint started_at_;
  std::optional<int64_t> step_;
  std::set<LocalRank>
      parked_;  // workers that have parked for assignment_.round, and have not ended, as the agent knows
  bool killed_parked_ = false;  // a worker was killed after the agent knew that it had parked
  NodeFailures failures_{place_.host->name(), "default"};
};

}  // namespace ddprun::sim
