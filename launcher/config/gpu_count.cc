#include "launcher/config/gpu_count.h"

#include <dlfcn.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// The three functions of NVML that counting takes; all return 0 for success.
using InitFn = int (*)();
using CountFn = int (*)(unsigned int*);
using ShutdownFn = int (*)();

absl::StatusOr<int> CountDevices() {
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 cannot be opened: no NVIDIA driver is installed here");
  }
  const auto init = reinterpret_cast<InitFn>(dlsym(library.get(), "nvmlInit_v2"));
  const auto count = reinterpret_cast<CountFn>(dlsym(library.get(), "nvmlDeviceGetCount_v2"));
  const auto shutdown = reinterpret_cast<ShutdownFn>(dlsym(library.get(), "nvmlShutdown"));
  if (init == nullptr || count == nullptr || shutdown == nullptr) {
    return absl::FailedPreconditionError(
        "libnvidia-ml.so.1 lacks nvmlDeviceGetCount_v2: the driver is too old");
  }
  if (const int error = init(); error != 0) {
    return absl::FailedPreconditionError(absl::StrCat("nvmlInit_v2 gave error ", error, ": try nvidia-smi"));
  }
  unsigned int num_devices = 0;
  const int error = count(&num_devices);
  shutdown();
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("nvmlDeviceGetCount_v2 gave error ", error, ": try nvidia-smi"));
  }
  if (num_devices == 0) return absl::FailedPreconditionError("the NVIDIA driver sees no device");
  return static_cast<int>(num_devices);
}

}  // namespace

int CountVisible(absl::string_view visible, int num_devices) {
  int count = 0;
  for (const absl::string_view entry : absl::StrSplit(visible, ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(entry);
    const bool by_uuid = absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-");
    int index;
    if (!by_uuid && (!absl::SimpleAtoi(text, &index) || index < 0 || index >= num_devices)) break;
    ++count;
  }
  return count;
}

absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible) {
  ASSIGN_OR_RETURN(const int num_devices, CountDevices());
  if (!visible) return num_devices;
  const int count = CountVisible(*visible, num_devices);
  if (count == 0) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=\"", *visible,
                                                      "\" leaves none of ", num_devices, " GPUs visible"));
  }
  return count;
}

}  // namespace ddprun
