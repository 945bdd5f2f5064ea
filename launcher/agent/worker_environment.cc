#include "launcher/agent/worker_environment.h"

#include <unistd.h>

#include <cstring>
#include <map>

namespace ddprun {
namespace {

bool Has(const EnvVars& vars, absl::string_view name) {
  for (const auto& [key, value] : vars) {
    if (key == name) return true;
  }
  return false;
}

}  // namespace

EnvVars CurrentEnvironment() {
  EnvVars vars;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (const char* equals = std::strchr(*entry, '=')) {
      vars.emplace_back(std::string(*entry, equals - *entry), std::string(equals + 1));
    }
  }
  return vars;
}

bool LimitsOmpThreads(const EnvVars& base, const LaunchConfig& config) {
  return config.num_local_workers > 1 && !Has(base, "OMP_NUM_THREADS");
}

EnvVars WorkerEnvironment(const EnvVars& base, const LaunchConfig& config, const Assignment& assignment,
                          LocalRank local_rank, const std::string& error_file,
                          const std::string& agent_socket) {
  std::map<std::string, std::string> vars(base.begin(), base.end());
  if (LimitsOmpThreads(base, config)) vars.insert_or_assign("OMP_NUM_THREADS", std::string("1"));
  // A rank whose peer died must get an error from NCCL, not wait for ever. PyTorch up to 2.1 reads the second
  // name. Both mean nothing to a worker without NCCL.
  vars.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  vars.emplace("NCCL_ASYNC_ERROR_HANDLING", "1");
  const WorkerEnv env{.rank = Rank(assignment.first_rank.value() + local_rank.value()),
                      .local_rank = local_rank,
                      .group_rank = assignment.group_rank,
                      .world_size = assignment.world_size,
                      .local_world_size = config.num_local_workers,
                      .group_world_size = assignment.group_world_size,
                      .role_rank = assignment.first_role_rank + static_cast<int>(local_rank.value()),
                      .role_world_size = assignment.role_world_size,
                      .role_name = config.role,
                      .master_addr = assignment.master_addr,
                      .master_port = assignment.master_port,
                      .restart_count = assignment.restart_count,
                      .max_restarts = config.max_restarts,
                      .run_id = config.run_id,
                      .error_file = error_file,
                      .round = assignment.round,
                      .agent_socket = agent_socket};
  for (auto& [name, value] : EncodeWorkerEnv(env)) vars[name] = std::move(value);
  return {vars.begin(), vars.end()};
}

}  // namespace ddprun
