// Stands in for NVIDIA's driver library: as many devices, or the error, as the environment says.
#include <cstdlib>

namespace {

int Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return Number("FAKE_NVML_INIT_ERROR"); }

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(Number("FAKE_NVML_DEVICES"));
  return Number("FAKE_NVML_COUNT_ERROR");
}

int nvmlShutdown() { return 0; }

}  // extern "C"
