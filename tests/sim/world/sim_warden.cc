#include "tests/sim/world/sim_warden.h"

#include <csignal>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

// Upper bound on the delay between an order and its effect.
constexpr Duration kShort = milliseconds(20);

}  // namespace

SimWarden::SimWarden(SimJob* job, SimHost* host, const HostHabits* habits, Random random, Outside outside)
    : job_(job), host_(host), habits_(habits), random_(std::move(random)), outside_(std::move(outside)) {}

void SimWarden::Post(std::function<void()> what) { After(Duration(0), std::move(what)); }

void SimWarden::Ended(LocalRank rank, const ExitInfo& exit, bool consequence) {
  Post([this, rank, exit, consequence] { outside_.ended(rank, exit, consequence); });
}

void SimWarden::After(Duration d, std::function<void()> what) {
  host_->After(d, [this, what = std::move(what)] {
    if (!gone_) what();
  });
}

void SimWarden::Spawn(const Assignment& assignment, int nproc) {
  if (gone_) return;
  if (fallen_ || habits_->no_exec) {
    const absl::Status why =
        fallen_ ? absl::CancelledError("the fence has expired") : absl::NotFoundError("exec: no such file");
    for (int i = 0; i < nproc; ++i) Ended(LocalRank(i), NeverStarted{why}, false);
    return;
  }
  workers_ = std::make_unique<SimWorkers>(
      job_, host_, assignment, nproc,
      Random(job_->settings->seed,
             absl::StrCat("workers of ", host_->name(), " in round ", assignment.round.value())),
      SimWorkers::Outside{
          .ended = [this](LocalRank rank, const ExitInfo& exit,
                          bool consequence) { Ended(rank, exit, consequence); },
          .report =
              [this, round = assignment.round](int64_t step, std::optional<int64_t> snapshot_step) {
                Post([this, round, step, snapshot_step] { outside_.report(round, step, snapshot_step); });
              }});
  workers_->Start();
}

void SimWarden::SignalAll(int signo) {
  if (workers_ != nullptr && !habits_->deaf) workers_->Signal(signo);
}

void SimWarden::KillAll() {
  After(random_.Between(Duration(0), kShort), [this] {
    if (workers_ != nullptr) workers_->Kill();
    Post([this] { outside_.all_dead(); });
  });
}

void SimWarden::Fence(std::optional<TimePoint> deadline) {
  if (gone_) return;
  fence_ = deadline;
  fallen_ = false;
  if (fence_ && *fence_ <= host_->now()) return Fall();
  SetFenceTimer();
}

void SimWarden::Fall() {
  fence_.reset();
  fallen_ = true;
  job_->trace->Line(job_->clock->now(), absl::StrCat("the fence of ", host_->name(), " expires"));
  ++job_->fences_fallen;
  if (job_->fence_fell) job_->fence_fell(host_->name());
  Post([this] { outside_.fenced(); });
  if (workers_ != nullptr) workers_->Kill();
}

void SimWarden::SetFenceTimer() {
  if (!fence_ || (timer_at_ && *timer_at_ <= *fence_)) return;
  timer_at_ = fence_;
  host_->At(*fence_, [this, at = *fence_] {
    if (gone_ || timer_at_ != at) return;
    timer_at_.reset();
    if (!fence_ || host_->now() < *fence_) return SetFenceTimer();
    Fall();
  });
}

void SimWarden::LoseAgent(std::function<void()> gone) {
  After(random_.Between(Duration(0), kShort), [this, gone = std::move(gone)] {
    Vanish();
    gone();
  });
}

void SimWarden::Vanish() {
  gone_ = true;
  workers_.reset();
}

}  // namespace ddprun::sim
