// The part of CUDA C++ that kernels.cu uses, for the CPU: a test that includes this header and then the kernels checks their
// arithmetic without a GPU. It does not check what nvcc or a GPU does.
#pragma once

#include <array>
#include <barrier>
#include <bit>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

#define __global__
#define __device__

namespace ddprun {

struct Dim3 {
  unsigned x = 1;
};

// Eight threads of a warp that exchange values. A GPU has 32 in a warp; no kernel here exchanges values among more than 8.
struct Lanes {
  std::barrier<> barrier{8};
  std::array<double, 8> values{};
};
inline thread_local Lanes* lanes_of_thread = nullptr;

}  // namespace ddprun

inline thread_local ddprun::Dim3 threadIdx, blockIdx, blockDim, gridDim;

inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

inline double __shfl_xor_sync(unsigned mask, double value, int distance) {
  DDPRUN_CHECK(mask == 0xFFu << (threadIdx.x % 32 / 8 * 8), "mask " << mask << " in thread " << threadIdx.x);
  auto& [barrier, values] = *ddprun::lanes_of_thread;
  const unsigned lane = threadIdx.x % 8;
  values[lane] = value;
  barrier.arrive_and_wait();
  const double other = values[lane ^ static_cast<unsigned>(distance)];
  barrier.arrive_and_wait();
  return other;
}

inline float __shfl_xor_sync(unsigned mask, float value, int distance) {
  return static_cast<float>(__shfl_xor_sync(mask, static_cast<double>(value), distance));
}

inline void __syncwarp(unsigned mask) {
  DDPRUN_CHECK(mask == 0xFFu << (threadIdx.x % 32 / 8 * 8), "mask " << mask << " in thread " << threadIdx.x);
  ddprun::lanes_of_thread->barrier.arrive_and_wait();
}

namespace ddprun {

// Runs the kernel on a grid of `blocks` blocks of `threads` threads, a multiple of 8.
template <typename... Parameters, typename... Arguments>
void LaunchOnHost(unsigned blocks, unsigned threads, void (*kernel)(Parameters...), Arguments... arguments) {
  for (unsigned first = 0; first < blocks * threads; first += 8) {
    Lanes lanes;
    std::vector<std::jthread> group;
    for (unsigned i = first; i < first + 8; ++i) {
      group.emplace_back([&, i] {
        gridDim.x = blocks;
        blockDim.x = threads;
        blockIdx.x = i / threads;
        threadIdx.x = i % threads;
        lanes_of_thread = &lanes;
        kernel(arguments...);
      });
    }
  }
}

}  // namespace ddprun
