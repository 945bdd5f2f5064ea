// A fake of NVIDIA's driver library. The FAKE_NVML_* environment variables set the number of devices, the PCI
// addresses and the errors. Device i has the UUID "GPU-<i>000", the i-th address in FAKE_NVML_PCI
// ("0000:10:00.0,..."), and one MIG device with the UUID "MIG-<i>000".
//
//   FAKE_NVML_PROCESSES="0:4242:4096,M1:77:?"  processes: device (M: its MIG device), pid, bytes (?: not known)
//   FAKE_NVML_LOST=0                           the device whose UUID cannot be read, as if it were lost
//   FAKE_NVML_PROCESSES_ERROR=3                the error of the list of processes
//   FAKE_NVML_MIG_ERROR=3                      the same, for MIG devices only
//   FAKE_NVML_MEMORY=FILE                      lines "DEVICE UNCORRECTED PENDING FAILED", read at each call
//   FAKE_NVML_HANG=NAME                        the function that never returns
//   FAKE_NVML_SHUTDOWN=FILE                    the file that nvmlShutdown creates
//   FAKE_NVML_STRICT=1                         aborts if the process exits meanwhile, other than with _exit
//
// GENERATION is that of the driver: 0 has no function for processes and memory, 1 has the oldest form for
// processes, 2 has all.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kNotSupported = 3;
constexpr int kLost = 15;

int Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Handles: 1 + index for a device, -1 - index for its MIG device.
void* HandleOf(intptr_t index) { return reinterpret_cast<void*>(1 + index); }
void* PartOf(intptr_t index) { return reinterpret_cast<void*>(-1 - index); }

std::atomic<int> hanging = 0;

void MayHang(const char* name) {
  const char* hang = std::getenv("FAKE_NVML_HANG");
  if (hang == nullptr || std::strcmp(hang, name) != 0) return;
  ++hanging;
  for (;;) pause();
}

// Like the driver's library, this one must not be destroyed during a call.
__attribute__((destructor)) void CheckCalls() {
  if (hanging > 0 && Number("FAKE_NVML_STRICT") != 0) std::abort();
}

struct Listed {
  unsigned int pid = 0;
  unsigned long long bytes = 0;
};

std::vector<Listed> ProcessesOf(void* handle) {
  const auto number = reinterpret_cast<intptr_t>(handle);
  const std::string device = number > 0 ? std::to_string(number - 1) : "M" + std::to_string(-1 - number);
  const char* list = std::getenv("FAKE_NVML_PROCESSES");
  std::istringstream entries(list == nullptr ? "" : list);
  std::vector<Listed> found;
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t pid = entry.find(':') + 1, bytes = entry.find(':', pid) + 1;
    if (entry.substr(0, pid - 1) != device) continue;
    found.push_back({static_cast<unsigned int>(std::stoul(entry.substr(pid))),
                     entry[bytes] == '?' ? ~0ull : std::stoull(entry.substr(bytes))});
  }
  return found;
}

// The structs of the versions of nvmlDeviceGetComputeRunningProcesses. That of _v3 is the one of drivers
// 535.43 and 535.86.
struct Info1 {
  unsigned int pid;
  unsigned long long bytes;
};
struct Info2 {
  unsigned int pid;
  unsigned long long bytes;
  unsigned int gpu_instance, compute_instance;
};
struct Info3 {
  unsigned int pid;
  unsigned long long bytes;
  unsigned int gpu_instance, compute_instance;
  unsigned long long protected_bytes;
};

template <typename Info>
int List(void* handle, unsigned int* count, Info* infos) {
  MayHang("nvmlDeviceGetComputeRunningProcesses");
  if (Number("FAKE_NVML_PROCESSES_ERROR") != 0) return Number("FAKE_NVML_PROCESSES_ERROR");
  if (reinterpret_cast<intptr_t>(handle) < 0 && Number("FAKE_NVML_MIG_ERROR") != 0) {
    return Number("FAKE_NVML_MIG_ERROR");
  }
  const std::vector<Listed> found = ProcessesOf(handle);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(found.size());
  if (found.size() > room) return kInsufficientSize;
  for (size_t i = 0; i < found.size(); ++i) {
    infos[i].pid = found[i].pid;
    infos[i].bytes = found[i].bytes;
  }
  return 0;
}

// Reads the entry of the device from FAKE_NVML_MEMORY.
[[maybe_unused]] bool ReadMemory(void* handle, unsigned long long& errors, unsigned int& pending,
                                 unsigned int& failed) {
  const char* path = std::getenv("FAKE_NVML_MEMORY");
  std::ifstream file(path == nullptr ? "" : path);
  for (intptr_t device; file >> device >> errors >> pending >> failed;) {
    if (HandleOf(device) == handle) return true;
  }
  return false;
}

struct Utilization {
  unsigned int gpu, memory;
};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  MayHang("nvmlInit");
  return Number("FAKE_NVML_INIT_ERROR");
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(Number("FAKE_NVML_DEVICES"));
  return Number("FAKE_NVML_COUNT_ERROR");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  if (static_cast<int>(index) >= Number("FAKE_NVML_DEVICES")) return kNotFound;
  *handle = HandleOf(index);
  return 0;
}

int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned int size) {
  if (std::getenv("FAKE_NVML_LOST") != nullptr && handle == HandleOf(Number("FAKE_NVML_LOST"))) return kLost;
  std::snprintf(uuid, size, "GPU-%d000", static_cast<int>(reinterpret_cast<intptr_t>(handle) - 1));
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (std::strncmp(uuid, "MIG-", 4) != 0) return kNotFound;
  const int index = std::atoi(uuid + 4) / 1000;
  if (index >= Number("FAKE_NVML_DEVICES")) return kNotFound;
  *handle = PartOf(index);
  return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* part, void** whole) {
  *whole = HandleOf(-1 - reinterpret_cast<intptr_t>(part));
  return 0;
}

int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  const char* list = std::getenv("FAKE_NVML_PCI");
  const std::string text = list == nullptr ? "" : list;
  constexpr size_t kAddress = sizeof "0000:10:00.0";  // length of an address and a comma
  const auto index = static_cast<size_t>(reinterpret_cast<intptr_t>(handle) - 1);
  if (text.size() + 1 < (index + 1) * kAddress) return kNotFound;
  return std::sscanf(text.c_str() + index * kAddress, "%x:%x:%x.0", &info->domain, &info->bus,
                     &info->device) == 3
             ? 0
             : kNotFound;
}

#if GENERATION >= 1
int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned int* count, Info1* infos) {
  return List(handle, count, infos);
}
#endif

#if GENERATION >= 2
int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned int* count, Info2* infos) {
  return List(handle, count, infos);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned int* count, Info3* infos) {
  return List(handle, count, infos);
}

// FAKE_NVML_BUSY: percent, one number for each device.
int nvmlDeviceGetUtilizationRates(void* handle, Utilization* utilization) {
  MayHang("nvmlDeviceGetUtilizationRates");
  const char* list = std::getenv("FAKE_NVML_BUSY");
  std::istringstream numbers(list == nullptr ? "" : list);
  for (intptr_t device = 0; numbers >> utilization->gpu; ++device) {
    if (HandleOf(device) == handle) return 0;
  }
  return kNotSupported;
}

int nvmlDeviceGetTotalEccErrors(void* handle, int type, int counter, unsigned long long* count) {
  MayHang("nvmlDeviceGetTotalEccErrors");
  unsigned int pending = 0, failed = 0;
  if (type != 1 || counter != 0) return kNotSupported;
  return ReadMemory(handle, *count, pending, failed) ? 0 : kNotSupported;
}

int nvmlDeviceGetRemappedRows(void* handle, unsigned int*, unsigned int*, unsigned int* pending,
                              unsigned int* failed) {
  unsigned long long errors = 0;
  return ReadMemory(handle, errors, *pending, *failed) ? 0 : kNotSupported;
}
#endif

int nvmlShutdown() {
  if (const char* path = std::getenv("FAKE_NVML_SHUTDOWN")) std::ofstream(path) << "called";
  return 0;
}

}  // extern "C"
