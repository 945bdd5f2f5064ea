// Makes kernels of the stand-in from functions with the parameters of the kernels.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker_sdk/device/cuda/testing/host_cuda.h"
#include "worker_sdk/testing/gpu/cuda/kernel.h"

namespace ddprun::stand_in {

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

// `kernel`: the kernel's source, compiled for the CPU, or another function that computes the same.
// `lanes`:  the source exchanges values among 8 threads.
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

}  // namespace ddprun::stand_in
