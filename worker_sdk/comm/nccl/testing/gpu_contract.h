// What communicator.h promises for operations on GPUs, in all worlds.
#pragma once

#include <span>

#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

namespace ddprun {

struct GpuContractCase {
  const char* name;
  // All ranks call it. Failures are those of GoogleTest.
  void (*check)(GpuRank& gpu);
};

std::span<const GpuContractCase> GpuContract();

}  // namespace ddprun
