#include "rendezvous/core/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/waiting_text.h"

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

Verdict Judge(const JobRules& policy, const Failure& cause, int restarts, const FurthestStep& furthest,
              int lost_nodes) {
  if (cause.origin == FailureOrigin::kFollowsAnother && lost_nodes > 0) {
    return {Cost::kNothing, "no restart is spent: the workers failed because a node was lost"};
  }
  if (std::holds_alternative<Stuck>(cause.exit)) {
    return {Cost::kJob, "a worker that is stuck holds its device: another start would end the same way"};
  }
  if (policy.max_restarts == 0) return {Cost::kJob, "no restart is allowed (--max-restarts=0)"};
  if (restarts >= policy.max_restarts) {
    return {Cost::kJob, absl::StrCat("all ", policy.max_restarts, " restarts are used up")};
  }
  if (cause.uptime && *cause.uptime < policy.min_uptime && !cause.step) {
    return {Cost::kJob, absl::StrCat("it failed after ", Seconds(*cause.uptime),
                                     ", before its first step and in less than ", Seconds(policy.min_uptime),
                                     " (--min-uptime): another start would end the same way")};
  }
  if (const int limit = policy.max_restarts_without_progress;
      limit > 0 && furthest.vain_restarts() >= limit) {
    return {Cost::kJob,
            absl::StrCat(furthest.vain_restarts(), " restarts in a row have not brought the job beyond step ",
                         furthest.step().value_or(0), " (--max-restarts-without-progress=", limit, ")")};
  }
  return {Cost::kRestart, absl::StrCat("restart ", restarts + 1, " of ", policy.max_restarts)};
}

}  // namespace ddprun
