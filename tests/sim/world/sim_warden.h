// The simulated warden of one agent. It owns the workers and survives a stopped or killed agent. It kills the
// workers when the agent is killed or the fence expires.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/assignment.h"
#include "base/exit_info.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

// Behaves as launcher/process/warden_client.h specifies. When the fence expires, `fenced` is called before
// `ended` is called for the killed workers, and no worker starts until the next call of Fence. The callbacks
// in `outside` must defer their work while the agent is stopped.
class SimWarden {
 public:
  struct Outside {
    std::function<void(LocalRank, ExitInfo, bool consequence)> ended;
    std::function<void(Round round, int64_t step, std::optional<int64_t> snapshot_step)> report;
    std::function<void(Round, LocalRank)> asks;  // a worker asks to survive
    std::function<void(Round, LocalRank, const std::string& why)> parked;
    std::function<void()> fenced;
    std::function<void()> all_dead;  // called after KillAll, when all workers but those to spare are dead
  };

  SimWarden(SimJob* job, SimHost* host, HostHabits* habits, Random random, Outside outside);

  // The workers in `keep` have parked, and take part in the round without a start.
  void Spawn(const Assignment& assignment, int nproc, const std::set<LocalRank>& keep);
  void SignalAll(int signo, const std::set<LocalRank>& spare);
  void KillAll(const std::set<LocalRank>& spare);
  // Asks the workers to stop because of a notice of pre-emption. If `by_signal`, as a signal to all processes of the node does.
  void Stop(bool by_signal);
  void Tell(const std::set<LocalRank>& who, Round round, bool round_over, bool no_round_follows);
  // Arms the fence with a deadline on the host's clock; nullopt disarms it.
  void Fence(std::optional<TimePoint> deadline);

  // The agent was killed: kills its workers after a short delay, then calls `gone`.
  void LoseAgent(std::function<void()> gone);
  // The warden was killed: its workers die immediately, without a callback.
  void Vanish();

  SimWorkers* workers() { return workers_.get(); }
  const SimWorkers* workers() const { return workers_.get(); }
  int alive() const { return workers_ == nullptr ? 0 : workers_->alive(); }
  int unparked() const { return workers_ == nullptr ? 0 : workers_->unparked(); }

 private:
  void After(Duration d, std::function<void()> what);
  void Post(std::function<void()> what);
  void Ended(LocalRank rank, const ExitInfo& exit, bool consequence);
  void SetFenceTimer();
  void Fall();

  SimJob* const job_;
  SimHost* const host_;
  HostHabits* const habits_;
  Random random_;
  const Outside outside_;
  std::unique_ptr<SimWorkers> workers_;
  std::optional<TimePoint> fence_;
  std::optional<TimePoint> timer_at_;
  bool fallen_ = false;
  bool gone_ = false;
};

}  // namespace ddprun::sim
