#include "launcher/scheduler/scheduled_job.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/scheduler/host_list.h"

namespace ddprun {
namespace {

constexpr int kNumPorts = 8;
constexpr uint64_t kFirstPort = 20000,
                   kPortRange = 9000;  // below torchrun's default ports and the ephemeral ones
// Step ids from this one on are not steps of srun: Slurm's numbers for the batch script, interactive shells and others.
constexpr uint32_t kFirstSpecialStep = 0xfffffff0;
constexpr int kMaxNodes = 1 << 20;

template <typename... Text>
absl::Status Bad(absl::string_view variable, absl::string_view value, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(variable, "=", value, ": ", text...));
}

std::string Env(const GetEnv& get_env, absl::string_view name) { return get_env(name).value_or(""); }

// Returns the number in `variable`. Errors: it is missing or is not a number from `min` to `max`.
absl::StatusOr<int> Number(const GetEnv& get_env, absl::string_view variable, int min, int max) {
  const std::string text = Env(get_env, variable);
  if (int number = 0; absl::SimpleAtoi(text, &number) && number >= min && number <= max) return number;
  return Bad(variable, text, "expected a number from ", min, " to ", max, ", as srun sets it");
}

// The largest number in a compact list: 4 of "2(x3),4".
absl::StatusOr<int> LargestOf(const GetEnv& get_env, absl::string_view variable) {
  const std::string text = Env(get_env, variable);
  int largest = 0;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (absl::ConsumeSuffix(&part, ")")) part = part.substr(0, part.find("(x"));
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 1) {
      return Bad(variable, text, "expected numbers of tasks, such as 1(x4), as srun sets it");
    }
    largest = std::max(largest, number);
  }
  return largest;
}

// The number of GPUs of this step on this node; 0 or empty if it has none.
OfferedValue GpusOfStep(const GetEnv& get_env) {
  const std::string list = Env(get_env, "SLURM_STEP_GPUS");
  if (!list.empty()) {
    const std::vector<absl::string_view> gpus = absl::StrSplit(list, ',');
    return {"nproc-per-node", absl::StrCat(gpus.size()), "SLURM_STEP_GPUS"};
  }
  return {"nproc-per-node", Env(get_env, "SLURM_GPUS_ON_NODE"), "SLURM_GPUS_ON_NODE"};
}

}  // namespace

absl::StatusOr<std::optional<ScheduledJob>> FindSlurmStep(const GetEnv& get_env) {
  const std::string step = Env(get_env, "SLURM_STEP_ID");
  uint32_t step_id = 0;
  if (!absl::SimpleAtoi(step, &step_id) || step_id >= kFirstSpecialStep) return std::nullopt;
  const std::string job = Env(get_env, "SLURM_JOB_ID");
  if (job.empty()) return std::nullopt;

  ScheduledJob found = {.scheduler = "Slurm",
                        .id_variable = "SLURM_JOB_ID",
                        .hosts_variable = "SLURM_STEP_NODELIST",
                        .node_variable = "SLURM_NODEID"};
  ASSIGN_OR_RETURN(const int num_nodes, Number(get_env, "SLURM_STEP_NUM_NODES", 1, kMaxNodes));
  found.size.push_back({"nnodes", absl::StrCat(num_nodes), "SLURM_STEP_NUM_NODES"});
  const std::string list = Env(get_env, found.hosts_variable);
  absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(list);
  if (!hosts.ok()) return Bad(found.hosts_variable, list, hosts.status().message());
  found.hosts = *std::move(hosts);
  if (static_cast<int>(found.hosts.size()) != num_nodes) {
    return Bad(found.hosts_variable, list, "expected ", num_nodes, " hosts (SLURM_STEP_NUM_NODES)");
  }
  ASSIGN_OR_RETURN(found.node, Number(get_env, found.node_variable, 0, num_nodes - 1));
  const std::string self = Env(get_env, "SLURMD_NODENAME");
  if (!self.empty() && found.hosts[found.node] != self) {
    return Bad(found.hosts_variable, list, "host ", found.node, " (SLURM_NODEID) is ",
               found.hosts[found.node], ", but this is ", self,
               " (SLURMD_NODENAME): start ddprun with srun, and do not change Slurm's variables");
  }
  if (get_env("SLURM_CPUS_ON_NODE")) {
    RETURN_IF_ERROR(Number(get_env, "SLURM_CPUS_ON_NODE", 1, kMaxNodes).status());
  }
  if (OfferedValue gpus = GpusOfStep(get_env); !gpus.value.empty() && gpus.value != "0") {
    found.size.push_back(std::move(gpus));
  }
  ASSIGN_OR_RETURN(const int tasks, LargestOf(get_env, "SLURM_STEP_TASKS_PER_NODE"));
  if (tasks > 1) {
    found.one_per_node = Bad(
        "SLURM_STEP_TASKS_PER_NODE", Env(get_env, "SLURM_STEP_TASKS_PER_NODE"), "srun starts ddprun ", tasks,
        " times on a node, but ddprun starts the workers of a node itself: write srun --ntasks-per-node=1 "
        "ddprun --nproc-per-node=",
        tasks, ", and request GPUs and CPUs for each node (--gpus-per-node) instead of for each task");
  }
  const std::string restarts = Env(get_env, "SLURM_RESTART_COUNT");
  found.id =
      absl::StrCat(job, ".", step, restarts.empty() || restarts == "0" ? "" : absl::StrCat("r", restarts));
  return found;
}

std::vector<int> CandidatePorts(absl::string_view job_id) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: equal on all hosts and in all releases
  for (const char c : job_id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::vector<int> ports;
  for (int i = 0; i < kNumPorts; ++i) {
    // The distance keeps the ports of jobs with neighbouring hashes apart.
    ports.push_back(static_cast<int>(kFirstPort + (hash + static_cast<uint64_t>(i) * 1009) % kPortRange));
  }
  return ports;
}

}  // namespace ddprun
