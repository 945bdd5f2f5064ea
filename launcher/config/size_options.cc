#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/host_list.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

constexpr int kMaxNodes = 1 << 20;

absl::Status ReadNodes(const Options& options, LaunchConfig& config) {
  const auto bad = [&] {
    return BadValue(options, "nnodes", "N or MIN:MAX with 0 < MIN <= MAX, such as 2 or 1:4");
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(options.Get("nnodes"), ':');
  if (parts.size() > 2) return bad();
  if (!absl::SimpleAtoi(parts.front(), &config.min_nodes) ||
      !absl::SimpleAtoi(parts.back(), &config.max_nodes)) {
    return bad();
  }
  if (config.min_nodes < 1 || config.max_nodes < config.min_nodes || config.max_nodes > kMaxNodes)
    return bad();
  return absl::OkStatus();
}

// The hosts of a Slurm step, or of the allocation outside of a step. A list longer than the job may grow has
// hosts that nobody shall wait for.
void ReadExpectedHosts(const Surroundings& surroundings, LaunchConfig& config) {
  for (const char* const name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::optional<std::string> text = surroundings.get_env(name);
    if (!text || text->empty()) continue;
    absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(*text);
    if (!hosts.ok()) {
      config.warnings.push_back(absl::StrCat(name, " is ignored: ", std::string(hosts.status().message())));
    } else if (hosts->size() > 1 && hosts->size() <= static_cast<size_t>(config.max_nodes)) {
      for (std::string& host : *hosts) host.resize(std::min(host.find('.'), host.size()));
      config.expected_hosts = *std::move(hosts);
    }
    return;
  }
}

}  // namespace

absl::Status ReadSize(const Options& options, const Surroundings& surroundings, LaunchConfig& config) {
  RETURN_IF_ERROR(ReadNodes(options, config));
  ReadExpectedHosts(surroundings, config);
  return absl::OkStatus();
}

}  // namespace ddprun
