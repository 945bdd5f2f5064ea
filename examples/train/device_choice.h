// The device of a run: all ranks compute on GPUs, or all on the host.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun::train {

// The GPU of a rank, or why it has none.
struct RankGpu {
  std::string flag{};         // --device of the rank
  std::string missing{};      // why it has no GPU: "there is no NVIDIA driver: ..."; empty if it has one
  std::string uuid{};         // of the GPU
  std::string description{};  // of the GPU, for people: "NVIDIA H100 80GB HBM3 (GPU 0 of this worker)"
};

// Looks for the GPU of this rank and for everything that training on it needs: the driver, NCCL, cuBLAS, kernels. With the
// flag "cpu", opens nothing.
RankGpu FindGpu(const std::string& flag, int local_rank);

struct DeviceChoice {
  DeviceType type = DeviceType::kHost;
  std::string reason{};  // with --device=auto: why it is the host
};

// The choice of all ranks. Pure.
//   Errors: kInvalidArgument: the ranks' flags differ. kFailedPrecondition: the flag is "cuda", and a rank has no GPU; the
//           message names the first such rank and what is missing.
StatusOr<DeviceChoice> ChooseDevice(std::span<const RankGpu> ranks);

// Collective. Returns a communicator of all ranks of the round on the device that they agree on: `host`, which connects them,
// or another one. Rank 0 prints that device.
//   flag:        --device.
//   stall_limit: how long to wait for the other ranks.
//   out:         of rank 0.
//   Errors:      those of ChooseDevice, on all ranks; those of Context::Connect and Work::Wait.
StatusOr<Communicator> ConnectOnDevice(Context& context, Communicator host, const std::string& flag,
                                       Duration stall_limit, std::ostream& out);

}  // namespace ddprun::train
