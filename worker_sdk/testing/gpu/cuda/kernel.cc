#include "worker_sdk/testing/gpu/cuda/kernel.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "worker_sdk/testing/gpu/cuda/bind_kernel.h"

// After bind_kernel.h, which defines what the kernels use.
#include "worker_sdk/device/cuda/kernels.cu"

namespace ddprun::stand_in {
namespace {

// Never destroyed: threads of streams outlive exit(). A deque, because pointers to its elements are kept.
std::deque<Kernel>& Kernels() {
  static auto* const kernels = new std::deque<Kernel>{
      MakeKernel("FillFloat32", FillFloat32),
      MakeKernel("ScaleFloat32", ScaleFloat32),
      MakeKernel("ScaleAddFloat32", ScaleAddFloat32),
      MakeKernel("CastFloat32ToFloat16", CastFloat32ToFloat16),
      MakeKernel("CastFloat16ToFloat32", CastFloat16ToFloat32),
      MakeKernel("CastFloat32ToBFloat16", CastFloat32ToBFloat16),
      MakeKernel("CastBFloat16ToFloat32", CastBFloat16ToFloat32),
      MakeKernel("MultiplyFloat32", MultiplyFloat32),
      MakeKernel("CompressFloat32ToFloat16", CompressFloat32ToFloat16),
      MakeKernel("CompressFloat32ToBFloat16", CompressFloat32ToBFloat16),
      MakeKernel("SumOfSquaresFloat32", SumOfSquaresFloat32, /*lanes=*/true),
      MakeKernel("AdamWFloat32", AdamWFloat32),
      MakeKernel("SgdFloat32", SgdFloat32),
  };
  return *kernels;
}

}  // namespace

AddedKernels::AddedKernels(std::vector<Kernel> kernels) {
  for (Kernel& kernel : kernels) Kernels().push_back(std::move(kernel));
}

const Kernel* FindKernel(std::string_view name) {
  const std::deque<Kernel>& kernels = Kernels();
  const auto it =
      std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.name == name; });
  return it == kernels.end() ? nullptr : &*it;
}

}  // namespace ddprun::stand_in
