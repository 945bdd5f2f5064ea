// The warden of one agent: it owns the workers, outlives whatever stops the agent, and kills them when the
// agent has gone or the fence has fallen.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/assignment.h"
#include "base/exit_info.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

// What a host does to all workers that are started on it.
struct HostHabits {
  bool deaf = false;     // they heed no SIGTERM
  bool no_exec = false;  // they cannot be started
};

// As launcher/process/warden_client.h has it: `fenced` comes before the ends of those whom the fence killed,
// and until it is armed or disarmed anew nothing is started. What is told to the agent goes through
// `outside`, which holds it back while the agent is stopped.
class SimWarden {
 public:
  struct Outside {
    std::function<void(LocalRank, ExitInfo, bool consequence)> ended;
    std::function<void(Round round, int64_t step, std::optional<int64_t> snapshot_step)> report;
    std::function<void()> fenced;
    std::function<void()> all_dead;  // answers KillAll
  };

  SimWarden(SimJob* job, SimHost* host, const HostHabits* habits, Random random, Outside outside);

  void Spawn(const Assignment& assignment, int nproc);
  void SignalAll(int signo);
  void KillAll();
  // On the host's clock; none: there is no fence.
  void Fence(std::optional<TimePoint> deadline);

  // The agent is gone: its workers go with it, in a moment; then comes `gone`.
  void LoseAgent(std::function<void()> gone);
  // The warden itself was killed; so are its workers, at once. Nobody is told.
  void Vanish();

  SimWorkers* workers() { return workers_.get(); }
  const SimWorkers* workers() const { return workers_.get(); }
  int alive() const { return workers_ == nullptr ? 0 : workers_->alive(); }

 private:
  void After(Duration d, std::function<void()> what);
  void Post(std::function<void()> what);
  void Ended(LocalRank rank, const ExitInfo& exit, bool consequence);
  void SetFenceTimer();
  void Fall();

  SimJob* const job_;
  SimHost* const host_;
  const HostHabits* const habits_;
  Random random_;
  const Outside outside_;
  std::unique_ptr<SimWorkers> workers_;
  std::optional<TimePoint> fence_;
  std::optional<TimePoint> timer_at_;
  bool fallen_ = false;
  bool gone_ = false;
};

}  // namespace ddprun::sim
