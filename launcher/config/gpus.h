// Finds the GPUs that workers may use. Uses NVIDIA's driver library, which is loaded at run time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the number of workers of this machine that can have a GPU of their own if CUDA_VISIBLE_DEVICES is `visible`. nullopt
// means that the variable is not set, so all GPUs are visible.
//   narrowed: each worker will see only its own entry of the list. Otherwise all workers see the same list, of which a process
//             can use all GPUs, but only one MIG device.
//   say:      receives one line if the driver is slow.
//   Errors:   kFailedPrecondition with the cause: no driver, no GPU in the machine, or no visible GPU; those of AskDriver.
absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible, bool narrowed,
                              const std::function<void(absl::string_view)>& say);

// Returns the names of the GPUs that are visible if CUDA_VISIBLE_DEVICES is `visible`; nullopt means that the variable is not
// set. The names have the form of entries of this variable and are in CUDA's order. As in CUDA and in PyTorch: the list ends at
// the first entry that is not valid, which includes an entry of another form (a number, GPU-..., MIG-...) than the first, and a
// UUID of no GPU or of several; and a list that has a GPU twice leaves none visible. MIG devices are assumed to exist.
//   uuids: of the machine's GPUs, in the driver's order: "GPU-8932f937-...". An empty one is not known; if there is one, UUIDs
//          in the list are assumed to exist.
std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible,
                                     const std::vector<std::string>& uuids);

}  // namespace ddprun
