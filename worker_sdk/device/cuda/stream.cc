#include "worker_sdk/device/cuda/stream.h"

#include <utility>

#include "worker_sdk/device/cuda/poll.h"

namespace ddprun {

void CudaStream::Destroy::operator()(CUstream stream) const noexcept {
  if (context->lost()) return;
  const CudaScope scope(*context);
  if (scope.status().ok())
    (void)context->Check(context->driver().cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

StatusOr<CudaStream> CudaStream::Create(std::shared_ptr<const CudaContext> context, int priority) {
  const CudaScope scope(*context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  CUstream stream = nullptr;
  DDPRUN_RETURN_IF_ERROR(
      context->Check(context->driver().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority),
                     "cuStreamCreateWithPriority"));
  return CudaStream(std::unique_ptr<CUstream_st, Destroy>(stream, Destroy{std::move(context)}));
}

StatusOr<bool> CudaStream::Idle() const {
  const CudaScope scope(context());
  DDPRUN_RETURN_IF_ERROR(scope.status());
  const CUresult result = context().driver().cuStreamQuery(get());
  if (result == CUDA_ERROR_NOT_READY) return false;
  DDPRUN_RETURN_IF_ERROR(context().Check(result, "cuStreamQuery"));
  return true;
}

Status CudaStream::Await(TimePoint deadline, std::string_view what) const {
  return PollUntil(context(), deadline, what, [this] { return Idle(); });
}

}  // namespace ddprun
