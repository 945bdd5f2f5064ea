// What the scheduler or launcher that started this process says about the job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// A value for an option that the user has not given.
struct OfferedValue {
  std::string option;    // "nnodes"
  std::string value;     // "4"
  std::string variable;  // where it is from: "SLURM_STEP_NUM_NODES"
};

struct ScheduledJob {
  std::string scheduler = {};  // "Slurm"; see the k...Name constants
  std::vector<OfferedValue> size =
      {};  // nnodes, nproc-per-node: each is used unless the user gives that option
  // All hosts of the job, one for each node, in the order of the node ranks; empty: not known.
  std::vector<std::string> hosts = {};
  // Names or addresses of the host of node 0, which hosts the coordinator.
  std::vector<std::string> first_host = {};
  int node = 0;                     // rank of this node; its index in `hosts`
  std::string id = {};              // differs between all jobs of the cluster: "12.0"
  std::string id_variable = {};     // "SLURM_JOB_ID"
  std::string hosts_variable = {};  // where `first_host` is from: "SLURM_STEP_NODELIST"
  std::string node_variable = {};   // "SLURM_NODEID"
  // Not OK: the nodes cannot form one job, because this process was started more than once on a node. The message says what
  // to write instead.
  absl::Status one_per_node = {};
  // Not OK: `first_host` is not the host of node 0, or is empty. The message says what to write instead.
  absl::Status address_known = {};
  std::vector<std::string> warnings = {};  // for users, one sentence each
};

inline constexpr char kSlurmName[] = "Slurm";
inline constexpr char kOpenMpiName[] = "Open MPI";
inline constexpr char kPbsName[] = "PBS";
inline constexpr char kLsfName[] = "LSF";

// The ports on which the first node of `job` tries to host the coordinator, and on which the others look for it. Equal on all
// nodes. Different jobs have different ports, with high probability. All are below the ephemeral ports of Linux.
std::vector<int> CandidatePorts(absl::string_view job_id);

}  // namespace ddprun
