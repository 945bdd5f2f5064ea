#include "launcher/config/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace ddprun {

namespace {

// The struct that nvmlDeviceGetPciInfo_v3 fills in.
struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pci_device_id;
  unsigned int pci_subsystem_id;
  char bus_id[32];
};

// The struct that nvmlDeviceGetComputeRunningProcesses_v2 and _v3 fill in.
struct ProcessInfo {
  unsigned int pid;
  unsigned long long bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
// The struct of nvmlDeviceGetComputeRunningProcesses.
struct OldProcessInfo {
  unsigned int pid;
  unsigned long long bytes;
};

// The struct that nvmlDeviceGetUtilizationRates fills in.
struct Utilization {
  unsigned int gpu;  // percent
  unsigned int memory;
};

constexpr unsigned int kUuidBytes = 96;
constexpr int kInsufficientSize = 7;                 // NVML_ERROR_INSUFFICIENT_SIZE
constexpr int kUncorrected = 1;                      // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kSinceDriverLoaded = 0;                // NVML_VOLATILE_ECC
constexpr unsigned long long kUnknownBytes = ~0ull;  // NVML_VALUE_NOT_AVAILABLE

absl::Status Failed(absl::string_view call, int error) {
  return absl::FailedPreconditionError(absl::StrCat(call, " failed with error ", error, ": try nvidia-smi"));
}

}  // namespace

// The functions return 0 on success. Old drivers have only init, shutdown and count; for such drivers, the
// other pointers are null.
struct Nvml::Library {
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (initialized) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  template <typename F>
  void Find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
  }

  void* handle = nullptr;
  bool initialized = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*by_index)(unsigned int, void**) = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*uuid)(void*, char*, unsigned int) = nullptr;
  int (*whole_of_part)(void*, void**) = nullptr;
  int (*pci_info)(void*, PciInfo*) = nullptr;
  int (*processes)(void*, unsigned int*, ProcessInfo*) = nullptr;
  int (*old_processes)(void*, unsigned int*, OldProcessInfo*) = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;
  int (*ecc_errors)(void*, int, int, unsigned long long*) = nullptr;
  int (*remapped_rows)(void*, unsigned int*, unsigned int*, unsigned int*, unsigned int*) = nullptr;
};

absl::StatusOr<Nvml> Nvml::Open() {
  const auto library = std::make_shared<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 cannot be opened: no NVIDIA driver is installed here");
  }
  library->Find(library->init, "nvmlInit_v2");
  library->Find(library->shutdown, "nvmlShutdown");
  library->Find(library->count, "nvmlDeviceGetCount_v2");
  library->Find(library->by_index, "nvmlDeviceGetHandleByIndex_v2");
  library->Find(library->by_uuid, "nvmlDeviceGetHandleByUUID");
  library->Find(library->uuid, "nvmlDeviceGetUUID");
  library->Find(library->whole_of_part, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  library->Find(library->pci_info, "nvmlDeviceGetPciInfo_v3");
  // _v2 before _v3, because two drivers (535.43 and 535.86) have a larger struct for _v3.
  library->Find(library->processes, "nvmlDeviceGetComputeRunningProcesses_v2");
  if (library->processes == nullptr) {
    library->Find(library->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  library->Find(library->old_processes, "nvmlDeviceGetComputeRunningProcesses");
  library->Find(library->utilization, "nvmlDeviceGetUtilizationRates");
  library->Find(library->ecc_errors, "nvmlDeviceGetTotalEccErrors");
  library->Find(library->remapped_rows, "nvmlDeviceGetRemappedRows");
  if (library->init == nullptr || library->count == nullptr || library->shutdown == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 lacks nvmlDeviceGetCount_v2: the driver is too old");
  }
  if (const int error = library->init(); error != 0) return Failed("nvmlInit_v2", error);
  library->initialized = true;
  return Nvml(library);
}

absl::StatusOr<int> Nvml::CountDevices() const {
  unsigned int count = 0;
  if (const int error = library_->count(&count); error != 0) return Failed("nvmlDeviceGetCount_v2", error);
  if (count == 0) return absl::FailedPreconditionError("the NVIDIA driver reports no device");
  return static_cast<int>(count);
}

absl::StatusOr<std::vector<std::string>> Nvml::Uuids() const {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  std::vector<std::string> uuids(count);
  if (library_->by_index == nullptr || library_->uuid == nullptr) return uuids;
  for (int i = 0; i < count; ++i) {
    void* handle = nullptr;
    char uuid[kUuidBytes] = {};
    if (library_->by_index(static_cast<unsigned int>(i), &handle) != 0) continue;  // This GPU has failed.
    if (library_->uuid(handle, uuid, sizeof uuid) == 0) uuids[i] = uuid;
  }
  return uuids;
}

absl::Status Nvml::CheckHandles() const {
  const Library& library = *library_;
  if (library.by_index != nullptr && library.by_uuid != nullptr && library.uuid != nullptr &&
      library.pci_info != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "libnvidia-ml.so.1 lacks nvmlDeviceGetPciInfo_v3: the driver is too old");
}

absl::StatusOr<std::string> Nvml::UuidOf(absl::string_view device) const {
  RETURN_IF_ERROR(CheckHandles());
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  char uuid[kUuidBytes] = {};
  if (const int error = library_->uuid(handle, uuid, sizeof uuid); error != 0)
    return Failed(absl::StrCat("GPU ", device, ": nvmlDeviceGetUUID"), error);
  return std::string(uuid);
}

absl::StatusOr<std::string> Nvml::PciAddress(absl::string_view device) const {
  RETURN_IF_ERROR(CheckHandles());
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  PciInfo info = {};
  if (const int error = library_->pci_info(handle, &info); error != 0)
    return Failed(absl::StrCat("GPU ", device, ": nvmlDeviceGetPciInfo_v3"), error);
  return absl::StrCat(absl::Hex(info.domain, absl::kZeroPad4), ":", absl::Hex(info.bus, absl::kZeroPad2), ":",
                      absl::Hex(info.device, absl::kZeroPad2), ".0");
}

absl::StatusOr<int> Nvml::BusyPercent(absl::string_view device) const {
  RETURN_IF_ERROR(CheckHandles());
  if (library_->utilization == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 lacks nvmlDeviceGetUtilizationRates: the driver is too old");
  }
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  Utilization utilization = {};
  if (const int error = library_->utilization(handle, &utilization); error != 0)
    return Failed(absl::StrCat("GPU ", device, ": nvmlDeviceGetUtilizationRates"), error);
  return static_cast<int>(std::min(utilization.gpu, 100u));
}

absl::StatusOr<std::vector<GpuProcess>> Nvml::Processes(absl::string_view device) const {
  RETURN_IF_ERROR(CheckHandles());
  if (absl::StartsWith(device, "MIG-")) {
    void* part = nullptr;
    if (library_->by_uuid(std::string(device).c_str(), &part) == 0) {
      // Fails on hosts of virtual GPUs.
      if (absl::StatusOr<std::vector<GpuProcess>> of_part = ProcessesOf(part); of_part.ok()) return of_part;
    }
  }
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  ASSIGN_OR_RETURN(std::vector<GpuProcess> processes, ProcessesOf(handle), absl::StrCat("GPU ", device));
  return processes;
}

namespace {

// Calls `list` until its result fits. Returns the error of NVML; 0 on success.
template <typename Info>
int List(int (*list)(void*, unsigned int*, Info*), void* handle, std::vector<GpuProcess>& processes) {
  std::vector<Info> infos(32);
  int error = kInsufficientSize;
  for (int tries = 0; tries < 5 && error == kInsufficientSize; ++tries) {
    auto count = static_cast<unsigned int>(infos.size());
    error = list(handle, &count, infos.data());
    if (error == kInsufficientSize) {
      infos.resize(std::max<size_t>(count, infos.size()) *
                   2);  // there may be more processes at the next call
    } else if (error == 0) {
      infos.resize(std::min<size_t>(count, infos.size()));
    }
  }
  if (error != 0) return error;
  for (const Info& info : infos) {
    processes.push_back(
        {.pid = static_cast<pid_t>(info.pid),
         .bytes = info.bytes == kUnknownBytes ? std::nullopt : std::optional<uint64_t>(info.bytes)});
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::vector<GpuProcess>> Nvml::ProcessesOf(void* handle) const {
  constexpr char kName[] = "nvmlDeviceGetComputeRunningProcesses";
  if (library_->processes == nullptr && library_->old_processes == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("libnvidia-ml.so.1 lacks ", kName, ": the driver is too old"));
  }
  std::vector<GpuProcess> processes;
  const int error = library_->processes != nullptr ? List(library_->processes, handle, processes)
                                                   : List(library_->old_processes, handle, processes);
  if (error != 0) return Failed(kName, error);
  return processes;
}

absl::StatusOr<GpuMemoryHealth> Nvml::MemoryHealth(absl::string_view device) const {
  RETURN_IF_ERROR(CheckHandles());
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  GpuMemoryHealth health;
  unsigned long long errors = 0;
  if (library_->ecc_errors != nullptr &&
      library_->ecc_errors(handle, kUncorrected, kSinceDriverLoaded, &errors) == 0) {
    health.uncorrected = errors;
  }
  unsigned int corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (library_->remapped_rows != nullptr &&
      library_->remapped_rows(handle, &corrected, &uncorrected, &pending, &failed) == 0) {
    health.remap_pending = pending != 0;
    health.remap_failed = failed != 0;
  }
  return health;
}

absl::StatusOr<void*> Nvml::Handle(absl::string_view device) const {
  void* handle = nullptr;
  unsigned int index = 0;
  if (absl::SimpleAtoi(device, &index)) {
    if (const int error = library_->by_index(index, &handle); error != 0)
      return Failed("nvmlDeviceGetHandleByIndex_v2", error);
    return handle;
  }
  if (!absl::ConsumePrefix(&device, "MIG-")) return HandleByUuid(device);
  // Older drivers name a MIG device by its GPU: "MIG-GPU-<uuid>/<instance>/<instance>".
  if (absl::StartsWith(device, "GPU-")) return HandleByUuid(device.substr(0, device.find('/')));
  const std::string part = absl::StrCat("MIG-", device);
  if (library_->whole_of_part == nullptr)
    return absl::FailedPreconditionError("the driver is too old for MIG devices");
  if (const int error = library_->by_uuid(part.c_str(), &handle); error != 0)
    return Failed("nvmlDeviceGetHandleByUUID", error);
  void* whole = nullptr;
  if (const int error = library_->whole_of_part(handle, &whole); error != 0)
    return Failed("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", error);
  return whole;
}

absl::StatusOr<void*> Nvml::HandleByUuid(absl::string_view beginning) const {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  for (int i = 0; i < count; ++i) {
    void* handle = nullptr;
    char uuid[kUuidBytes] = {};
    if (library_->by_index(static_cast<unsigned int>(i), &handle) != 0) continue;  // This GPU has failed.
    if (library_->uuid(handle, uuid, sizeof uuid) != 0) continue;
    if (absl::StartsWith(uuid, beginning)) return handle;
  }
  return absl::FailedPreconditionError("no GPU has that UUID: see nvidia-smi -L");
}

}  // namespace ddprun
