// NVIDIA's driver library, opened at run time: this program is built, and runs, without it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

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
