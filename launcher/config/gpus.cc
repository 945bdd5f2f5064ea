#include "launcher/config/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace ddprun {

namespace {

enum class Form { kNumber, kUuid, kMig };

Form FormOf(absl::string_view entry) {
  if (absl::StartsWith(entry, "GPU-")) return Form::kUuid;
  return absl::StartsWith(entry, "MIG-") ? Form::kMig : Form::kNumber;
}

// The index of the GPU with this number; CUDA ignores what follows the digits. nullopt: there is none.
std::optional<int> IndexOfNumber(absl::string_view entry, size_t num_gpus) {
  const size_t digits = std::min(entry.find_first_not_of("0123456789"), entry.size());
  int index = -1;
  if (!absl::SimpleAtoi(entry.substr(0, digits), &index)) return std::nullopt;
  if (static_cast<size_t>(index) >= num_gpus) return std::nullopt;
  return index;
}

// The index of the only GPU whose UUID begins so. nullopt: there is none, or there are several.
std::optional<int> IndexOfUuid(absl::string_view beginning, const std::vector<std::string>& uuids) {
  std::optional<int> found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!absl::StartsWith(uuids[i], beginning)) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible,
                                     const std::vector<std::string>& uuids) {
  std::vector<std::string> gpus;
  if (!visible) {
    for (size_t i = 0; i < uuids.size(); ++i) gpus.push_back(absl::StrCat(i));
    return gpus;
  }
  const bool uuids_known = std::find(uuids.begin(), uuids.end(), "") == uuids.end();
  std::set<std::string> seen;  // names that are equal exactly if they name the same device
  for (const absl::string_view entry : absl::StrSplit(*visible, ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(entry);
    const Form form = FormOf(text);
    if (!gpus.empty() && form != FormOf(gpus[0])) break;
    std::string name(text);
    if (form == Form::kNumber || (form == Form::kUuid && uuids_known)) {
      const std::optional<int> index =
          form == Form::kNumber ? IndexOfNumber(text, uuids.size()) : IndexOfUuid(text, uuids);
      if (!index) break;
      name = absl::StrCat(*index);
    }
    if (!seen.insert(name).second) return {};
    gpus.push_back(form == Form::kNumber ? name : std::string(text));
  }
  return gpus;
}

absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible, bool narrowed) {
  ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, nvml.Uuids());
  const std::vector<std::string> gpus = VisibleGpus(visible, uuids);
  if (gpus.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=\"", *visible,
                                                      "\" leaves none of ", uuids.size(), " GPUs visible"));
  }
  return narrowed || FormOf(gpus[0]) != Form::kMig ? static_cast<int>(gpus.size()) : 1;
}

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

constexpr unsigned int kUuidBytes = 96;

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

absl::StatusOr<std::string> Nvml::PciAddress(absl::string_view device) const {
  const Library& library = *library_;
  if (library.by_index == nullptr || library.by_uuid == nullptr || library.uuid == nullptr ||
      library.pci_info == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 lacks nvmlDeviceGetPciInfo_v3: the driver is too old");
  }
  ASSIGN_OR_RETURN(void* const handle, Handle(device), absl::StrCat("GPU ", device));
  PciInfo info = {};
  if (const int error = library.pci_info(handle, &info); error != 0)
    return Failed(absl::StrCat("GPU ", device, ": nvmlDeviceGetPciInfo_v3"), error);
  return absl::StrCat(absl::Hex(info.domain, absl::kZeroPad4), ":", absl::Hex(info.bus, absl::kZeroPad2), ":",
                      absl::Hex(info.device, absl::kZeroPad2), ".0");
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
    if (const int error = library_->uuid(handle, uuid, sizeof uuid); error != 0)
      return Failed("nvmlDeviceGetUUID", error);
    if (absl::StartsWith(uuid, beginning)) return handle;
  }
  return absl::FailedPreconditionError("no GPU has that UUID: see nvidia-smi -L");
}

}  // namespace ddprun
