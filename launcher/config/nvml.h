// NVIDIA's driver library (NVML), loaded at run time, so that this program builds and runs without the
// library.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// A process that computes on a GPU.
struct GpuProcess {
  pid_t pid = 0;                       // as the driver names it; may be of another PID namespace
  std::optional<uint64_t> bytes = {};  // memory on the GPU; nullopt: the driver does not know it

  bool operator==(const GpuProcess&) const = default;
};

// The state of a GPU's memory since its driver was loaded. Old drivers and GPUs without ECC do not know the
// values.
struct GpuMemoryHealth {
  std::optional<uint64_t> uncorrected = {};  // uncorrected ECC errors
  bool remap_pending = false;                // a row is replaced at the next reset of the GPU
  bool remap_failed = false;                 // there was no row to replace a bad one with

  bool operator==(const GpuMemoryHealth&) const = default;
};

// In all methods, `device` is an entry of CUDA_VISIBLE_DEVICES: a number, the UUID of a GPU
// ("GPU-8932f937...") or a prefix of such a UUID, or the UUID of a MIG device ("MIG-..."). A call may block
// for seconds, or forever if a GPU is broken.
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
  // Their UUIDs; empty if the driver does not report it. At least one.
  absl::StatusOr<std::vector<std::string>> Uuids() const;

  // The UUID of the GPU; for a MIG device, of the GPU that it is a part of.
  absl::StatusOr<std::string> UuidOf(absl::string_view device) const;
  // The PCI address of a device, as in /sys/bus/pci/devices: "0000:dc:00.0".
  absl::StatusOr<std::string> PciAddress(absl::string_view device) const;
  // The processes that compute on the device, of all users. For a MIG device, those of that device; if the
  // driver does not list them, those of the whole GPU.
  absl::StatusOr<std::vector<GpuProcess>> Processes(absl::string_view device) const;
  // The share of the last second or so in which the GPU, for a MIG device the whole one, ran some kernel, in percent.
  absl::StatusOr<int> BusyPercent(absl::string_view device) const;
  // For a MIG device, the memory of the whole GPU.
  absl::StatusOr<GpuMemoryHealth> MemoryHealth(absl::string_view device) const;

 private:
  struct Library;  // the loaded library and its functions
  explicit Nvml(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  absl::Status CheckHandles() const;
  absl::StatusOr<void*> Handle(absl::string_view device) const;
  absl::StatusOr<void*> HandleByUuid(absl::string_view beginning) const;
  absl::StatusOr<std::vector<GpuProcess>> ProcessesOf(void* handle) const;

  std::shared_ptr<const Library> library_;  // never shared; a shared_ptr only because Library is incomplete
};

}  // namespace ddprun
