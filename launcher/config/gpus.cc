#include "launcher/config/gpus.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/config/driver_call.h"
#include "launcher/config/nvml.h"

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

absl::StatusOr<int> CountGpus(const std::optional<std::string>& visible, bool narrowed,
                              const std::function<void(absl::string_view)>& say) {
  const auto ask = []() -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
    return nvml.Uuids();
  };
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, AskDriver<std::vector<std::string>>(ask, say));
  const std::vector<std::string> gpus = VisibleGpus(visible, uuids);
  if (gpus.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=\"", *visible,
                                                      "\" leaves none of ", uuids.size(), " GPUs visible"));
  }
  return narrowed || FormOf(gpus[0]) != Form::kMig ? static_cast<int>(gpus.size()) : 1;
}

}  // namespace ddprun
