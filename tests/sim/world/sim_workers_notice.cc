// What simulated workers do when they are asked to stop because of a notice of pre-emption.

#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/world/sim_workers.h"

namespace ddprun::sim {
namespace {

// Upper bound on the time that a worker takes to exit or park after the last step.
constexpr Duration kExitTime = milliseconds(100);

}  // namespace

void SimWorkers::Stop() {
  if (job_->settings->on_notice == Settings::kIgnore || over_ || std::exchange(notice_, true)) return;
  if (job_->settings->on_notice == Settings::kEndBySignal) return NoticeSignal();
  if (!plain()) return;  // decided in the next step
  for (const LocalRank rank : alive_) {
    After(random_.Between(Duration(0), job_->settings->save), [this, rank] { End(rank, Exited{0}); });
  }
}

void SimWorkers::NoticeSignal() {
  if (job_->settings->on_notice != Settings::kEndBySignal) return;
  After(random_.Between(Duration(0), kExitTime / 2), [this] {
    const std::set<LocalRank> signaled = alive_;
    for (const LocalRank rank : signaled) {
      if (parked_.count(rank) == 0) End(rank, Signaled{SIGUSR1, false});
    }
  });
}

bool SimWorkers::MustStop() const {
  return notice_ ||
         std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.second.notice; });
}

void SimWorkers::Stopped() {
  over_ = true;
  if (is_master()) {
    ++job_->stops;
    job_->state->Stopped(start_no_, step_);
    Detail(absl::StrCat("workers of round ", round().value(), " stop after step ", step_));
    outside_.report(step_, snapshot_step_);
    Tell("stop");
  } else {
    outside_.report(++step_, snapshot_step_);
  }
  for (const LocalRank rank : alive_) {
    After(random_.Between(Duration(0), kExitTime), [this, rank] {
      const bool parks = job_->settings->on_notice == Settings::kPark && may_survive_.count(rank) > 0;
      if (!parks) return End(rank, Exited{0});
      Park(rank, "stopped because of a notice");
      if (parked_ == alive_) HangUp();
    });
  }
}

}  // namespace ddprun::sim
