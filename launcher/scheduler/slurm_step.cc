#include "launcher/scheduler/slurm_step.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/scheduler/host_list.h"
#include "launcher/scheduler/variables.h"

namespace ddprun {
namespace {

// Step ids from this one on are not steps of srun: Slurm's numbers for the batch script, interactive shells and others.
constexpr uint32_t kFirstSpecialStep = 0xfffffff0;

// The largest number in a compact list: 4 of "2(x3),4".
absl::StatusOr<int> LargestOf(const GetEnv& get_env, absl::string_view variable) {
  const std::string text = ValueOf(get_env, variable);
  int largest = 0;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (absl::ConsumeSuffix(&part, ")")) part = part.substr(0, part.find("(x"));
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 1) {
      return BadVariable(variable, text, "expected numbers of tasks, such as 1(x4), as srun sets it");
    }
    largest = std::max(largest, number);
  }
  return largest;
}

// The number of GPUs of this step on this node; 0 or empty if it has none.
OfferedValue GpusOfStep(const GetEnv& get_env) {
  const std::string list = ValueOf(get_env, "SLURM_STEP_GPUS");
  if (!list.empty()) {
    const std::vector<absl::string_view> gpus = absl::StrSplit(list, ',');
    return {"nproc-per-node", absl::StrCat(gpus.size()), "SLURM_STEP_GPUS"};
  }
  return {"nproc-per-node", ValueOf(get_env, "SLURM_GPUS_ON_NODE"), "SLURM_GPUS_ON_NODE"};
}

}  // namespace

absl::StatusOr<std::optional<ScheduledJob>> FindSlurmStep(const GetEnv& get_env) {
  const std::string step = ValueOf(get_env, "SLURM_STEP_ID");
  uint32_t step_id = 0;
  if (!absl::SimpleAtoi(step, &step_id) || step_id >= kFirstSpecialStep) return std::nullopt;
  const std::string job = ValueOf(get_env, "SLURM_JOB_ID");
  if (job.empty()) return std::nullopt;

  ScheduledJob found = {.scheduler = kSlurmName,
                        .id_variable = "SLURM_JOB_ID",
                        .hosts_variable = "SLURM_STEP_NODELIST",
                        .node_variable = "SLURM_NODEID"};
  ASSIGN_OR_RETURN(const int num_nodes,
                   NumberIn(get_env, "SLURM_STEP_NUM_NODES", 1, kMaxScheduledNodes, "srun"));
  found.size.push_back({"nnodes", absl::StrCat(num_nodes), "SLURM_STEP_NUM_NODES"});
  const std::string list = ValueOf(get_env, found.hosts_variable);
  absl::StatusOr<std::vector<std::string>> hosts = ExpandHostList(list);
  if (!hosts.ok()) return BadVariable(found.hosts_variable, list, hosts.status().message());
  found.hosts = *std::move(hosts);
  found.first_host = {found.hosts[0]};
  if (static_cast<int>(found.hosts.size()) != num_nodes) {
    return BadVariable(found.hosts_variable, list, "expected ", num_nodes, " hosts (SLURM_STEP_NUM_NODES)");
  }
  ASSIGN_OR_RETURN(found.node, NumberIn(get_env, found.node_variable, 0, num_nodes - 1, "srun"));
  const std::string self = ValueOf(get_env, "SLURMD_NODENAME");
  if (!self.empty() && found.hosts[found.node] != self) {
    return BadVariable(found.hosts_variable, list, "host ", found.node, " (SLURM_NODEID) is ",
                       found.hosts[found.node], ", but this is ", self,
                       " (SLURMD_NODENAME): start ddprun with srun, and do not change Slurm's variables");
  }
  if (get_env("SLURM_CPUS_ON_NODE")) {
    RETURN_IF_ERROR(NumberIn(get_env, "SLURM_CPUS_ON_NODE", 1, kMaxScheduledNodes, "srun").status());
  }
  if (OfferedValue gpus = GpusOfStep(get_env); !gpus.value.empty() && gpus.value != "0") {
    found.size.push_back(std::move(gpus));
  }
  ASSIGN_OR_RETURN(const int tasks, LargestOf(get_env, "SLURM_STEP_TASKS_PER_NODE"));
  if (tasks > 1) {
    found.one_per_node = BadVariable(
        "SLURM_STEP_TASKS_PER_NODE", ValueOf(get_env, "SLURM_STEP_TASKS_PER_NODE"), "srun starts ddprun ",
        tasks,
        " times on a node, but ddprun starts the workers of a node itself: write srun --ntasks-per-node=1 "
        "ddprun --nproc-per-node=",
        tasks, ", and request GPUs and CPUs for each node (--gpus-per-node) instead of for each task");
  }
  const std::string restarts = ValueOf(get_env, "SLURM_RESTART_COUNT");
  found.id =
      absl::StrCat(job, ".", step, restarts.empty() || restarts == "0" ? "" : absl::StrCat("r", restarts));
  return found;
}

}  // namespace ddprun
