#include "examples/train/replica.h"

#include "examples/train/gpu/gpu_replica.h"

namespace ddprun::train {

StatusOr<std::unique_ptr<Replica>> MakeReplica(const Options& options, const ReplicaShape& shape,
                                               const Device& device) {
  if (device.type == DeviceType::kHost) return MakeHostReplica(options, shape);
  return MakeGpuReplica(options, shape, device.index);
}

}  // namespace ddprun::train
