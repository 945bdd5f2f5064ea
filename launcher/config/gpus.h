// Finds the GPUs that workers may use. Uses NVIDIA's driver library, which is loaded at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Returns the number of workers of this machine that can have a GPU of their own if CUDA_VISIBLE_DEVICES is `visible`. nullopt
// means that the variable is not set, so all GPUs are visible.
//   narrowed: each worker will see only its own entry of the list. Otherwise all workers see the same list, of which a process
//             can use all GPUs, but only one MIG device.
//   Errors:   kFailedPrecondition with the cause: no driver, no GPU in the machine, or no visible GPU.
absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible, bool narrowed);

// Returns the names of the GPUs that are visible if CUDA_VISIBLE_DEVICES is `visible`; nullopt means that the variable is not
// set. The names have the form of entries of this variable and are in CUDA's order. As in CUDA and in PyTorch: the list ends at
// the first entry that is not valid, which includes an entry of another form (a number, GPU-..., MIG-...) than the first, and a
// UUID of no GPU or of several; and a list that has a GPU twice leaves none visible. MIG devices are assumed to exist.
//   uuids: of the machine's GPUs, in the driver's order: "GPU-8932f937-...". An empty one is not known; if there is one, UUIDs
//          in the list are assumed to exist.
std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible,
                                     const std::vector<std::string>& uuids);

// NVIDIA's driver library, loaded at run time, so that this program builds and runs without the library.
//   Errors:  kFailedPrecondition for all methods, with the NVML call and its error number.
//   Threads: one caller at a time.
class Nvml {
 public:
  // Errors: no driver is installed, or the driver is too old or does not work.
  static absl::StatusOr<Nvml> Open();
  Nvml(Nvml&&) = default;
  Nvml& operator=(Nvml&&) = default;

  // Returns the number of devices, at least 1. Fails if there is no device.
  absl::StatusOr<int> CountDevices() const;
  // Their UUIDs; empty for one whose UUID the driver does not tell. At least one.
  absl::StatusOr<std::vector<std::string>> Uuids() const;

  // The PCI address of a device, as in /sys/bus/pci/devices: "0000:dc:00.0".
  //   device: an entry of CUDA_VISIBLE_DEVICES: a number, the UUID of a GPU ("GPU-8932f937...") or a prefix
  //           of such a UUID, or the UUID of a MIG device ("MIG-...").
  absl::StatusOr<std::string> PciAddress(absl::string_view device) const;

 private:
  struct Library;  // the loaded library and its functions
  explicit Nvml(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  absl::StatusOr<void*> Handle(absl::string_view device) const;
  absl::StatusOr<void*> HandleByUuid(absl::string_view beginning) const;

  std::shared_ptr<const Library> library_;  // never shared; a shared_ptr only because Library is incomplete
};

}  // namespace ddprun
