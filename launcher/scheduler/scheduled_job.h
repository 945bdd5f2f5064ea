// What the scheduler that started this process says about the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/options.h"

namespace ddprun {

// A value for an option that the user has not given.
struct OfferedValue {
  std::string option;    // "nnodes"
  std::string value;     // "4"
  std::string variable;  // where it is from: "SLURM_STEP_NUM_NODES"
};

struct ScheduledJob {
  std::string scheduler = {};  // "Slurm"
  std::vector<OfferedValue> size =
      {};  // nnodes, nproc-per-node: each is used unless the user gives that option
  std::vector<std::string> hosts =
      {};                           // all hosts of the job, one for each node, in the order of the node ranks
  int node = 0;                     // index in `hosts` of this node
  std::string id = {};              // differs between all jobs of the cluster: "12.0"
  std::string id_variable = {};     // "SLURM_JOB_ID"
  std::string hosts_variable = {};  // "SLURM_STEP_NODELIST"
  std::string node_variable = {};   // "SLURM_NODEID"
  // Not OK: the nodes cannot form one job, because the scheduler has started this process more than once on a node. The
  // message says what to write instead.
  absl::Status one_per_node = {};
};

// Reads the environment of a step of Slurm. Returns nullopt if srun did not start this process: in a batch script, or in a
// shell for interactive use, ddprun runs on this node only, as torchrun does.
//   Errors: kInvalidArgument: a variable has no valid value, or they contradict each other; the message has the variable, its
//           value, and the remedy.
absl::StatusOr<std::optional<ScheduledJob>> FindSlurmStep(const GetEnv& get_env);

// The ports on which the first node of `job` tries to host the coordinator, and on which the others look for it. Equal on all
// nodes. Different jobs have different ports, with high probability. All are below the ephemeral ports of Linux.
std::vector<int> CandidatePorts(absl::string_view job_id);

}  // namespace ddprun
