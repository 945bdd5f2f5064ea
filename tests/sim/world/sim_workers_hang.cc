// Simulated workers that pause, hang or are slow, and what can be seen of them.

#include <csignal>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/world/hang_rules.h"
#include "tests/sim/world/host_state.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {

void SimWorkers::DoStep(Duration time) {
  if (paused_) return;  // The master announces the first step twice.
  const bool slow = job_->clock->now() < habits_->slow_until;
  job_->hangs->Step(assignment_, host_->name(), alive_.size(), slow ? habits_->slow : 100);
  if (slow) {
    time = time * habits_->slow / 100;
    if (!std::exchange(habits_->slow_counted, true)) job_->fired(FaultKind::kSlowRank);
  }
  if (!habits_->pause || alive_.empty()) return After(time, [this] { Done(); });
  const Duration pause = *std::exchange(habits_->pause, std::nullopt);
  paused_ = *std::next(alive_.begin(), random_.Between(0, static_cast<int64_t>(alive_.size()) - 1));
  stopped_ = random_.Chance(0.3);
  hangs_ = pause == Duration::max();
  const std::string who =
      absl::StrCat("rank ", assignment_.first_rank.value() + paused_->value(), " on ", host_->name());
  if (hangs_) {
    job_->fired(FaultKind::kHangRank);
    job_->trace->Line(job_->clock->now(), absl::StrCat(who, stopped_ ? " is stopped for good" : " hangs"));
    return job_->hangs->Hangs(assignment_, *paused_, [this, here = std::weak_ptr<bool>(here_)] {
      if (here.expired()) return;
      host_->After(Duration(0), [this, here] {
        if (!here.expired()) End(*paused_, Signaled{SIGKILL, false});
      });
    });
  }
  job_->fired(FaultKind::kStallRank);
  job_->trace->Line(job_->clock->now(), absl::StrCat(who, " pauses for ", ToMillis(pause), " ms"));
  After(pause + time, [this] {
    paused_.reset();
    stopped_ = false;
    Done();
  });
}

std::vector<WorkerEvidence> SimWorkers::Evidence() const {
  std::vector<WorkerEvidence> evidence;
  for (const LocalRank rank : alive_) {
    // While a worker pauses, the others of its node wait for it.
    const bool waits = paused_ ? paused_ != rank : step_done_;
    WorkerEvidence worker{.local_rank = rank,
                          .pid = 1 + rank.value(),
                          .state = WorkerEvidence::State::kSleeping,
                          .step = step_,
                          .phase = "training"};
    if (paused_ == rank) {
      worker.state = stopped_ ? WorkerEvidence::State::kStopped : WorkerEvidence::State::kRunning;
    }
    worker.operation = WorkerEvidence::Operation{
        .kind = "all-reduce", .number = waits ? step_ + 1 : step_, .in_flight = waits};
    job_->hangs->Evidence(assignment_, rank, waits);
    evidence.push_back(std::move(worker));
  }
  return evidence;
}

bool DoToWorkers(const Fault& fault, HostState& host, TimePoint now) {
  SimAgent* const agent = host.live();
  switch (fault.kind) {
    case FaultKind::kFailWorker:
      if (agent == nullptr || agent->warden().unparked() == 0 || host.host->suspended()) return false;
      agent->FailWorker(fault.n < 0 ? ExitInfo(Signaled{-fault.n, false}) : ExitInfo(Exited{fault.n}));
      return true;
    case FaultKind::kEndParked:
      return agent != nullptr && !host.host->suspended() && agent->FailParked();
    case FaultKind::kFailAt:
      host.habits.fail_at = static_cast<HostHabits::Point>(fault.n);
      return false;
    case FaultKind::kHangRank:
      host.habits.pause = Duration::max();
      return false;
    case FaultKind::kStallRank:
      host.habits.pause = fault.length;
      return false;
    case FaultKind::kSlowRank:
      host.habits.slow_until = now + fault.length;
      host.habits.slow = fault.n;
      host.habits.slow_counted = false;
      return false;
    default:
      return false;
  }
}

}  // namespace ddprun::sim
