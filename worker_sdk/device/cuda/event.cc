#include "worker_sdk/device/cuda/event.h"

#include <utility>

#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/poll.h"

namespace ddprun {

void CudaEvent::Destroy::operator()(CUevent event) const noexcept {
  if (context->lost()) return;
  const CudaScope scope(*context);
  if (scope.status().ok()) (void)context->Check(context->driver().cuEventDestroy_v2(event), "cuEventDestroy");
}

StatusOr<CudaEvent> CudaEvent::Create(std::shared_ptr<const CudaContext> context) {
  const CudaScope scope(*context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  CUevent event = nullptr;
  DDPRUN_RETURN_IF_ERROR(
      context->Check(context->driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  return CudaEvent(std::unique_ptr<CUevent_st, Destroy>(event, Destroy{std::move(context)}));
}

Status CudaEvent::Record(CUstream stream) {
  const CudaScope scope(context());
  DDPRUN_RETURN_IF_ERROR(scope.status());
  DDPRUN_RETURN_IF_ERROR(context().Check(context().driver().cuEventRecord(get(), stream), "cuEventRecord"));
  recorded_ = true;
  return OkStatus();
}

Status CudaEvent::MakeWait(CUstream stream) const {
  DDPRUN_RETURN_IF_ERROR(CheckRecorded());
  const CudaScope scope(context());
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context().Check(context().driver().cuStreamWaitEvent(stream, get(), 0), "cuStreamWaitEvent");
}

StatusOr<bool> CudaEvent::Happened() const {
  DDPRUN_RETURN_IF_ERROR(CheckRecorded());
  const CudaScope scope(context());
  DDPRUN_RETURN_IF_ERROR(scope.status());
  const CUresult result = context().driver().cuEventQuery(get());
  if (result == CUDA_ERROR_NOT_READY) return false;
  DDPRUN_RETURN_IF_ERROR(context().Check(result, "cuEventQuery"));
  return true;
}

Status CudaEvent::Await(TimePoint deadline, std::string_view what) const {
  return PollUntil(context(), deadline, what, [this] { return Happened(); });
}

// CUDA reports that an event has happened if it was never recorded.
Status CudaEvent::CheckRecorded() const {
  if (recorded_) return OkStatus();
  return FailedPreconditionError(StrCat("an event on GPU ", context().index(), " was not recorded"));
}

}  // namespace ddprun
