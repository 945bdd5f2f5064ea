#include "worker_sdk/device/cuda/module.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace ddprun {
namespace {

// Modules by context. A context is alive while its module is, so that its address names no other one.
struct Modules {
  std::mutex mu;
  std::map<const CudaContext*, std::weak_ptr<const CudaKernels>> by_context;
};

Modules& LoadedModules() {
  static auto* const modules = new Modules;  // never destroyed: threads may use it while the process exits
  return *modules;
}

}  // namespace

StatusOr<std::shared_ptr<const CudaKernels>> CudaKernels::Load(std::shared_ptr<const CudaContext> context,
                                                               std::span<const unsigned char> image) {
  Modules& modules = LoadedModules();
  const std::lock_guard<std::mutex> lock(modules.mu);
  std::erase_if(modules.by_context, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const CudaKernels>& known = modules.by_context[context.get()];
  if (auto kernels = known.lock()) return kernels;

  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<const CudaImage> loaded, CudaImage::Load(context, image));
  const std::shared_ptr<CudaKernels> kernels(new CudaKernels(std::move(loaded)));
  DDPRUN_RETURN_IF_ERROR(kernels->FindFunctions());
  known = kernels;
  return std::shared_ptr<const CudaKernels>(kernels);
}

Status CudaKernels::FindFunctions() {
  const std::pair<CUfunction*, const char*> kFunctions[] = {
      {&functions_.fill, "FillFloat32"},
      {&functions_.scale, "ScaleFloat32"},
      {&functions_.scale_add, "ScaleAddFloat32"},
      {&functions_.cast_to_float16, "CastFloat32ToFloat16"},
      {&functions_.cast_from_float16, "CastFloat16ToFloat32"},
      {&functions_.cast_to_bfloat16, "CastFloat32ToBFloat16"},
      {&functions_.cast_from_bfloat16, "CastBFloat16ToFloat32"},
      {&functions_.multiply, "MultiplyFloat32"},
      {&functions_.compress_to_float16, "CompressFloat32ToFloat16"},
      {&functions_.compress_to_bfloat16, "CompressFloat32ToBFloat16"},
      {&functions_.sum_of_squares, "SumOfSquaresFloat32"},
      {&functions_.adamw, "AdamWFloat32"},
      {&functions_.sgd, "SgdFloat32"},
  };
  for (const auto& [function, name] : kFunctions) {
    DDPRUN_ASSIGN_OR_RETURN(*function, image_->Find(name));
  }
  return OkStatus();
}

Status CudaKernels::Fill(CUstream stream, float* out, float value, int64_t count) const {
  return image_->Launch(functions_.fill, stream, count, out, value, count);
}

Status CudaKernels::Scale(CUstream stream, float* inout, float factor, int64_t count) const {
  return image_->Launch(functions_.scale, stream, count, inout, factor, count);
}

Status CudaKernels::Multiply(CUstream stream, float* inout, double factor, int64_t count) const {
  return image_->Launch(functions_.multiply, stream, count, inout, factor, count);
}

Status CudaKernels::ScaleAdd(CUstream stream, float* inout, float factor, const float* addend,
                             int64_t count) const {
  return image_->Launch(functions_.scale_add, stream, count, inout, factor, addend, count);
}

Status CudaKernels::CastToFloat16(CUstream stream, uint16_t* out, const float* in, int64_t count) const {
  return image_->Launch(functions_.cast_to_float16, stream, count, out, in, count);
}

Status CudaKernels::CastFromFloat16(CUstream stream, float* out, const uint16_t* in, int64_t count) const {
  return image_->Launch(functions_.cast_from_float16, stream, count, out, in, count);
}

Status CudaKernels::CastToBFloat16(CUstream stream, uint16_t* out, const float* in, int64_t count) const {
  return image_->Launch(functions_.cast_to_bfloat16, stream, count, out, in, count);
}

Status CudaKernels::CastFromBFloat16(CUstream stream, float* out, const uint16_t* in, int64_t count) const {
  return image_->Launch(functions_.cast_from_bfloat16, stream, count, out, in, count);
}

Status CudaKernels::CompressToFloat16(CUstream stream, uint16_t* out, const float* in, float divisor,
                                      float* residual, int64_t count) const {
  return image_->Launch(functions_.compress_to_float16, stream, count, out, in, divisor, residual, count);
}

Status CudaKernels::CompressToBFloat16(CUstream stream, uint16_t* out, const float* in, float divisor,
                                       float* residual, int64_t count) const {
  return image_->Launch(functions_.compress_to_bfloat16, stream, count, out, in, divisor, residual, count);
}

Status CudaKernels::SumOfSquares(CUstream stream, double* sums, double* open_after, const double* open_before,
                                 int64_t filled, const float* in, int64_t count) const {
  DDPRUN_CHECK(filled >= 0 && filled < kSumBlock, filled);
  const int64_t num_blocks = count == 0 ? 0 : (filled + count + kSumBlock - 1) / kSumBlock;
  return image_->Launch(functions_.sum_of_squares, stream, kOpenSums * num_blocks, sums, open_after,
                        open_before, filled, in, count);
}

Status CudaKernels::AdamW(CUstream stream, float* params, float* m, float* v, const float* grads,
                          const AdamWScalars<float>& scalars, int64_t count) const {
  return image_->Launch(functions_.adamw, stream, count, params, m, v, grads, scalars.rate, scalars.epsilon,
                        scalars.keep, scalars.beta1, scalars.beta2, count);
}

Status CudaKernels::Sgd(CUstream stream, float* params, float* v, const float* grads,
                        const SgdScalars& scalars, int64_t count) const {
  return image_->Launch(functions_.sgd, stream, count, params, v, grads, scalars.rate, scalars.keep,
                        scalars.momentum, count);
}

}  // namespace ddprun
