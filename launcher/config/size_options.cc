#include <algorithm>
#include <climits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"
#include "launcher/scheduler/host_list.h"

namespace ddprun {
namespace {

constexpr int kMaxNodes = 1 << 20;
constexpr int kMaxLocalWorkers = 1 << 14;

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

// Reads the hosts of the Slurm step, or of the allocation if there is no step, unless UseScheduler has found the hosts.
// Ignores a list with only one host. Also ignores a list with more hosts than --nnodes allows, because some of its hosts
// would never join.
void ReadExpectedHosts(const ProcessInputs& inputs, LaunchConfig& config) {
  const auto is_usable = [&](const std::vector<std::string>& hosts) {
    return hosts.size() > 1 && hosts.size() <= static_cast<size_t>(config.max_nodes);
  };
  if (!config.expected_hosts.empty()) {
    if (!is_usable(config.expected_hosts)) config.expected_hosts.clear();
    return;
  }
  for (const char* const name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::optional<std::string> text = inputs.get_env(name);
    if (!text || text->empty()) continue;
    absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(*text);
    if (!hosts.ok()) {
      config.warnings.push_back(absl::StrCat(name, " is ignored: ", std::string(hosts.status().message())));
    } else if (is_usable(*hosts)) {
      for (std::string& host : *hosts) host.resize(std::min(host.find('.'), host.size()));
      config.expected_hosts = *std::move(hosts);
    }
    return;
  }
}

// Errors that torchrun also reports have torchrun's wording, because scripts may match it.
absl::StatusOr<int> CountLocalWorkers(const Options& options, const ProcessInputs& inputs,
                                      LaunchConfig& config) {
  constexpr char kName[] = "nproc-per-node";
  const std::string& text = options.Get(kName);
  if (text == "cpu") return inputs.num_cpus;
  // The value of CUDA_VISIBLE_DEVICES in the workers' environment.
  std::optional<std::string> visible = inputs.get_env("CUDA_VISIBLE_DEVICES");
  for (const auto& [variable, value] : options.program_env()) {
    if (variable == "CUDA_VISIBLE_DEVICES") visible = value;
  }
  const bool narrowed = options.IsSet("virtual-local-rank");
  if (text == "auto" || text == "gpu") {
    absl::StatusOr<int> count = inputs.count_gpus(visible, narrowed);
    config.counts_gpus = count.ok();
    if (count.ok()) return count;
    if (!absl::IsFailedPrecondition(count.status())) {
      // Whether there are GPUs is not known.
      return absl::Status(count.status().code(),
                          absl::StrCat(options.Quote(kName), ": ", count.status().message()));
    }
    if (text == "auto") return inputs.num_cpus;
    return absl::FailedPreconditionError(absl::StrCat(options.Quote(kName), ": Cuda is not available. (",
                                                      std::string(count.status().message()), ")"));
  }
  if (text == "xpu") {
    return absl::FailedPreconditionError(absl::StrCat(
        options.Quote(kName), ": Xpu is not available. (Only NVIDIA GPUs can be counted: give a number.)"));
  }
  const std::string want = absl::StrCat("a number from 1 to ", kMaxLocalWorkers, ", auto, gpu or cpu");
  if (int64_t number; !absl::SimpleAtoi(text, &number)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.Quote(kName), ": Unsupported nproc_per_node value: ", text, " (expected ", want, ")"));
  }
  return WholeNumber(options, kName, 1, kMaxLocalWorkers, want);
}

// Checks that the world size fits in a 32-bit integer.
absl::Status CheckWorldSize(const Options& options, const LaunchConfig& config) {
  if (config.num_local_workers <= INT_MAX / config.max_nodes) return absl::OkStatus();
  return BadValue(options, "nproc-per-node",
                  absl::StrCat("fewer: ", config.max_nodes, " nodes with ", config.num_local_workers,
                               " workers each exceed the limit of ", INT_MAX, " ranks"));
}

}  // namespace

absl::Status ReadSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  RETURN_IF_ERROR(ReadNodes(options, config));
  ReadExpectedHosts(inputs, config);
  return absl::OkStatus();
}

absl::Status ReadLocalSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  ASSIGN_OR_RETURN(config.num_local_workers, CountLocalWorkers(options, inputs, config));
  return CheckWorldSize(options, config);
}

}  // namespace ddprun
