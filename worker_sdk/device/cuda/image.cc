#include "worker_sdk/device/cuda/image.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr Duration kUnloadLimit = seconds(1);
constexpr int64_t kThreads = 256;  // of a block
// 2048 threads, as many as a multiprocessor of sm_80 or sm_90 runs.
constexpr int64_t kBlocksOfMultiprocessor = 8;

}  // namespace

CudaImage::CudaImage(std::shared_ptr<const CudaContext> context, CUmodule module)
    : context_(std::move(context)), module_(module) {}

StatusOr<std::unique_ptr<const CudaImage>> CudaImage::Load(std::shared_ptr<const CudaContext> context,
                                                           std::span<const unsigned char> image) {
  if (image.empty())
    return FailedPreconditionError(
        "this program has no kernels for GPUs: it was built without a CUDA toolkit");
  const CudaScope scope(*context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  CUmodule module = nullptr;
  const CUresult result = context->driver().cuModuleLoadData(&module, image.data());
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    return FailedPreconditionError(
        StrCat(context->Check(result, "cuModuleLoadData").message(),
               ": this program has kernels for GPUs of compute capability 8.0 and newer"));
  }
  DDPRUN_RETURN_IF_ERROR(context->Check(result, "cuModuleLoadData"));
  return std::unique_ptr<const CudaImage>(new CudaImage(std::move(context), module));
}

CudaImage::~CudaImage() {
  context_->Destroy(
      [driver = &context_->driver(), module = module_] { (void)driver->cuModuleUnload(module); },
      kUnloadLimit);
}

StatusOr<CUfunction> CudaImage::Find(const char* name) const {
  const CudaScope scope(*context_);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  CUfunction kernel = nullptr;
  DDPRUN_RETURN_IF_ERROR(context_->Check(context_->driver().cuModuleGetFunction(&kernel, module_, name),
                                         StrCat("cuModuleGetFunction(", name, ")")));
  return kernel;
}

Status CudaImage::LaunchWith(CUfunction kernel, CUstream stream, int64_t num_threads,
                             void** parameters) const {
  DDPRUN_CHECK(num_threads >= 0, num_threads);
  if (num_threads == 0) return OkStatus();
  const int64_t most = kBlocksOfMultiprocessor * context_->num_multiprocessors();
  const int64_t blocks =
      std::clamp<int64_t>((num_threads + kThreads - 1) / kThreads, 1, std::max<int64_t>(1, most));
  const CudaScope scope(*context_);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context_->Check(
      context_->driver().cuLaunchKernel(kernel, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1,
                                        /*shared_bytes=*/0, stream, parameters, /*extra=*/nullptr),
      "cuLaunchKernel");
}

}  // namespace ddprun
