#include "worker_sdk/testing/gpu/cuda/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker_sdk/device/cuda/testing/host_cuda.h"

// After host_cuda.h, which defines what the kernels use.
#include "worker_sdk/device/cuda/kernels.cu"

namespace ddprun::stand_in {
namespace {

// The result of a kernel does not depend on the grid, so the stand-in uses the smallest one.
template <typename... Parameters>
void RunOneThread(void (*kernel)(Parameters...), Parameters... arguments) {
  gridDim.x = blockDim.x = 1;
  blockIdx.x = threadIdx.x = 0;
  kernel(arguments...);
}

template <typename Parameter>
Parameter Argument(void* place, const Resolve& resolve, std::vector<Region>& regions) {
  Parameter value;
  std::memcpy(&value, place, sizeof value);
  if constexpr (std::is_pointer_v<Parameter>) {
    if (value != nullptr) {
      regions.push_back(resolve(value));
      value = reinterpret_cast<Parameter>(regions.back().view);
    }
  }
  return value;
}

// `lanes`: the kernel exchanges values among 8 threads.
template <typename... Parameters>
Kernel MakeKernel(std::string_view name, void (*kernel)(Parameters...), bool lanes = false) {
  const auto bind = [=](void** parameters, const Resolve& resolve) -> std::function<void()> {
    std::vector<Region> regions;
    const auto copy = [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple<Parameters...>{Argument<Parameters>(parameters[I], resolve, regions)...};
    };
    auto arguments = copy(std::index_sequence_for<Parameters...>());
    return [=, regions = std::move(regions)] {
      std::apply(
          [&](Parameters... values) {
            if (lanes) {
              LaunchOnHost(1, 8, kernel, values...);
            } else {
              RunOneThread(kernel, values...);
            }
          },
          arguments);
    };
  };
  return {name, lanes ? 32u : 1u, bind};
}

}  // namespace

const Kernel* FindKernel(std::string_view name) {
  static const auto* const kernels = new std::vector<Kernel>{
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
  const auto it =
      std::find_if(kernels->begin(), kernels->end(), [&](const Kernel& k) { return k.name == name; });
  return it == kernels->end() ? nullptr : &*it;
}

}  // namespace ddprun::stand_in
