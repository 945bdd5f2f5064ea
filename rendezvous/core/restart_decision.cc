#include "rendezvous/core/restart_decision.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/exit_info.h"

namespace ddprun {

void FurthestStep::Reported(int64_t step) {
  if (step_ && step <= *step_) return;
  step_ = step;
  further_ = true;
}

void FurthestStep::Restarted() {
  restarts_ = vain_restarts() + 1;
  further_ = false;
}

FurthestStep FurthestStep::From(const Parts& parts) {
  FurthestStep furthest;
  furthest.step_ = parts.step;
  furthest.further_ = parts.further;
  furthest.restarts_ = parts.restarts;
  return furthest;
}

HostFailures HostFailures::From(std::map<std::string, int> failures) {
  HostFailures hosts;
  hosts.failures_ = std::move(failures);
  return hosts;
}

LossStreak LossStreak::From(int count, std::optional<int64_t> step) {
  LossStreak streak;
  streak.count_ = count;
  streak.step_ = step;
  return streak;
}

RestartDecision DecideRestart(const JobRules& policy, const Failure& cause, int restarts,
                              const FurthestStep& furthest, int lost_nodes) {
  if (cause.origin == FailureOrigin::kFollowsAnother && lost_nodes > 0)
    return {Cost::kNothing, FollowedFromLoss{}};
  if (std::holds_alternative<Stuck>(cause.exit)) return {Cost::kJob, WorkerStuck{}};
  if (policy.max_restarts == 0) return {Cost::kJob, NoRestartAllowed{}};
  if (restarts >= policy.max_restarts) return {Cost::kJob, RestartsUsedUp{policy.max_restarts}};
  if (cause.uptime && *cause.uptime < policy.min_uptime && !cause.step) {
    return {Cost::kJob, FailedTooEarly{*cause.uptime, policy.min_uptime}};
  }
  if (const int limit = policy.max_restarts_without_progress;
      limit > 0 && furthest.vain_restarts() >= limit) {
    return {Cost::kJob, NoProgress{furthest.vain_restarts(), furthest.step().value_or(0), limit}};
  }
  return {Cost::kRestart, RestartGranted{restarts + 1, policy.max_restarts}};
}

void LossStreak::Lost(Duration ran, std::optional<int64_t> step) {
  const bool further = step && (!step_ || *step > *step_);
  if (further || ran >= kProgress) count_ = 0;
  ++count_;
  step_ = step;
}

Duration LossStreak::pause() const {
  if (count_ < 2) return Duration::zero();
  return std::min<Duration>(seconds(1) * (int64_t{1} << std::min(count_ - 2, 10)), kLongestPause);
}

}  // namespace ddprun
