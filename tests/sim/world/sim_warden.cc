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

SimWarden::SimWarden(SimJob* job, SimHost* host, HostHabits* habits, Random random, Outside outside)
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

void SimWarden::Spawn(const Assignment& assignment, int nproc, const std::set<LocalRank>& keep) {
  if (gone_) return;
  std::map<LocalRank, SimProcess> processes;
  if (workers_ != nullptr) processes = workers_->Take(keep);
  std::set<LocalRank> kept;
  for (const auto& [rank, process] : processes) kept.insert(rank);
  const bool cannot = fallen_ || habits_->no_exec;
  for (int i = 0; i < nproc; ++i) {
    const LocalRank rank(i);
    if (keep.count(rank) > 0) continue;
    if (!cannot) {
      processes[rank] = {};
      continue;
    }
    const absl::Status why =
        fallen_ ? absl::CancelledError("the fence has expired") : absl::NotFoundError("exec: no such file");
    Ended(rank, NeverStarted{why}, false);
  }
  workers_ = std::make_unique<SimWorkers>(
      job_, host_, habits_, assignment, std::move(processes), kept,
      Random(job_->settings->seed,
             absl::StrCat("workers of ", host_->name(), " in round ", assignment.round.value())),
      SimWorkers::Outside{
          .ended = [this](LocalRank rank, const ExitInfo& exit,
                          bool consequence) { Ended(rank, exit, consequence); },
          .report =
              [this, round = assignment.round](int64_t step, std::optional<int64_t> snapshot_step) {
                Post([this, round, step, snapshot_step] { outside_.report(round, step, snapshot_step); });
              },
          .asks = [this, round = assignment.round](
                      LocalRank rank) { Post([this, round, rank] { outside_.asks(round, rank); }); },
          .parked =
              [this, round = assignment.round](LocalRank rank, const std::string& why) {
                Post([this, round, rank, why] { outside_.parked(round, rank, why); });
              }});
  if (workers_->alive() > 0) workers_->Start();
}

void SimWarden::SignalAll(int signo, const std::set<LocalRank>& spare) {
  if (workers_ != nullptr && !habits_->deaf) workers_->Signal(signo, spare);
}

void SimWarden::Stop(bool by_signal) {
  if (workers_ == nullptr || habits_->deaf) return;
  by_signal ? workers_->NoticeSignal() : workers_->Stop();
}

void SimWarden::Tell(const std::set<LocalRank>& who, Round round, bool round_over, bool no_round_follows) {
  After(Duration(0), [this, who, round, round_over, no_round_follows] {
    if (workers_ != nullptr && workers_->round() == round) workers_->Tell(who, round_over, no_round_follows);
  });
}

void SimWarden::KillAll(const std::set<LocalRank>& spare) {
  // The answer comes also if the warden has ended, or ends meanwhile.
  host_->After(random_.Between(Duration(0), kShort), [this, spare] {
    if (workers_ != nullptr) workers_->Kill(spare);
    host_->After(Duration(0), [this] { outside_.all_dead(); });
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
