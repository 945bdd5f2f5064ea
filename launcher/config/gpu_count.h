// How many GPUs workers may use, asked of NVIDIA's driver library, which is opened at run time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

// Devices of this machine that `visible`, the value of CUDA_VISIBLE_DEVICES, leaves (none: all of them).
//   Errors: kFailedPrecondition, saying why no GPU can be used: no driver, none in the machine, none visible.
absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible);

// Of `num_devices`, those that a CUDA_VISIBLE_DEVICES of `visible` leaves, as it names them, in the order in
// which CUDA numbers them; none: all of them. As the CUDA runtime reads it, the list ends at the first entry
// that is no device. Entries by UUID (GPU-..., MIG-...) are taken to exist.
std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible, int num_devices);

}  // namespace ddprun
