#include "worker_sdk/ddp/last_step.h"

#include "base/check.h"
#include "worker_sdk/ddp/data_parallel_step.h"

namespace ddprun::internal {
namespace {

DataParallelStep& Checked(DataParallelStep* step) {
  DDPRUN_CHECK(step != nullptr, "the DataParallel was moved from");
  return *step;
}

}  // namespace

LastStep::LastStep(DataParallel& dp) : step_(Checked(dp.impl_.get())) {}

bool LastStep::is_atomic() const { return step_.is_atomic(); }
int64_t LastStep::committed() const { return step_.committed(); }
int64_t LastStep::prepared() const { return step_.prepared() ? step_.prepared()->options.step : -1; }
const Optimizer* LastStep::optimizer() const {
  return step_.prepared() ? step_.prepared()->optimizer : nullptr;
}
Status LastStep::Apply() {
  DDPRUN_RETURN_IF_ERROR(step_.CommitPrepared());
  return AwaitWork();
}
Status LastStep::AwaitWork() { return step_.AwaitWork(); }
void LastStep::Drop() { step_.DropPrepared(); }
void LastStep::Release() { step_.Release(); }

}  // namespace ddprun::internal
