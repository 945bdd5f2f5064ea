// How many GPUs workers may use, asked of NVIDIA's driver library, which is opened at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Devices of this machine that `visible`, the value of CUDA_VISIBLE_DEVICES, leaves (none: all of them).
//   Errors: kFailedPrecondition, saying why no GPU can be used: no driver, none in the machine, none visible.
absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible);

// Of `num_devices`, those that a CUDA_VISIBLE_DEVICES of `visible` leaves, as it names them, in the order in
// which CUDA numbers them; none: all of them. As the CUDA runtime reads it, the list ends at the first entry
// that is no device. Entries by UUID (GPU-..., MIG-...) are taken to exist.
std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible, int num_devices);

// NVIDIA's driver library, opened at run time: this program is built, and runs, without it.

//   Errors:  kFailedPrecondition everywhere, with the call and NVIDIA's number.
//   Threads: one caller at a time.
class Nvml {
 public:
  // Errors: no driver is installed, it is too old, or it does not work.
  static absl::StatusOr<Nvml> Open();
  Nvml(Nvml&&) = default;
  Nvml& operator=(Nvml&&) = default;

  // At least one.
  absl::StatusOr<int> CountDevices() const;

  // Where a device is, as in /sys/bus/pci/devices: "0000:dc:00.0".
  //   `device`: an entry of CUDA_VISIBLE_DEVICES: a number, the UUID of a GPU ("GPU-8932f937...") or the
  //   beginning of one, or that of a part of a GPU ("MIG-...").
  absl::StatusOr<std::string> PciAddress(absl::string_view device) const;

 private:
  struct Library;  // an open library with its functions
  explicit Nvml(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  absl::StatusOr<void*> Handle(absl::string_view device) const;
  absl::StatusOr<void*> HandleByUuid(absl::string_view beginning) const;

  std::shared_ptr<const Library> library_;  // shared with nobody: its deleter is known where it is made
};

}  // namespace ddprun
