// A fake of NVIDIA's driver library. The FAKE_NVML_* environment variables set the number of devices, the PCI
// addresses and the errors. Device i has the UUID "GPU-<i>000", the i-th address in FAKE_NVML_PCI
// ("0000:10:00.0,..."), and one MIG device with the UUID "MIG-<i>000".
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kNotFound = 6;

int Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Handles: 1 + index for a device, -1 - index for its MIG device.
void* HandleOf(intptr_t index) { return reinterpret_cast<void*>(1 + index); }
void* PartOf(intptr_t index) { return reinterpret_cast<void*>(-1 - index); }

struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return Number("FAKE_NVML_INIT_ERROR"); }

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

int nvmlShutdown() { return 0; }

}  // extern "C"
