#include "launcher/config/gpu_count.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/config/nvml.h"

namespace ddprun {

std::vector<std::string> VisibleGpus(const std::optional<std::string>& visible, int num_devices) {
  std::vector<std::string> gpus;
  if (!visible) {
    for (int i = 0; i < num_devices; ++i) gpus.push_back(absl::StrCat(i));
    return gpus;
  }
  for (const absl::string_view entry : absl::StrSplit(*visible, ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(entry);
    const bool by_uuid = absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-");
    int index;
    if (!by_uuid && (!absl::SimpleAtoi(text, &index) || index < 0 || index >= num_devices)) break;
    gpus.emplace_back(text);
  }
  return gpus;
}

absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible) {
  ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  ASSIGN_OR_RETURN(const int num_devices, nvml.CountDevices());
  const std::vector<std::string> gpus = VisibleGpus(visible, num_devices);
  if (gpus.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=\"", *visible,
                                                      "\" leaves none of ", num_devices, " GPUs visible"));
  }
  return static_cast<int>(gpus.size());
}

}  // namespace ddprun
