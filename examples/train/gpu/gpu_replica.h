// The model and its optimizer on a GPU.
#pragma once

#include <memory>

#include "ddprun/status.h"
#include "examples/train/options.h"
#include "examples/train/replica.h"

namespace ddprun::train {

// Of MakeReplica. `index`: the number of the GPU in this process.
//   Errors: those of OpenCudaDriver, OpenCublas, GpuGpt::Create and MakeOptimizer.
StatusOr<std::unique_ptr<Replica>> MakeGpuReplica(const Options& options, const ReplicaShape& shape,
                                                  int index);

}  // namespace ddprun::train
