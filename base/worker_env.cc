#include "base/worker_env.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

using Getter = std::function<std::optional<std::string>(absl::string_view)>;

absl::Status Bad(absl::string_view name, absl::string_view value, absl::string_view want) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=\"", value, "\" in the environment: expected ", want));
}

// The number in variable `name`, or `fallback` if it is not set.
absl::StatusOr<int> Number(const Getter& get, absl::string_view name, int fallback, int min, int max) {
  const std::optional<std::string> text = get(name);
  if (!text) return fallback;
  int value;
  if (!absl::SimpleAtoi(*text, &value) || value < min || value > max) {
    return Bad(name, *text, absl::StrCat("a whole number from ", min, " to ", max));
  }
  return value;
}

constexpr int kMaxWorld = 1 << 24;

}  // namespace

EnvVars EncodeWorkerEnv(const WorkerEnv& env) {
  const auto number = [](auto n) { return absl::StrCat(n); };
  EnvVars vars = {
      {"LOCAL_RANK", number(env.virtual_local_rank ? 0 : env.local_rank.value())},
      {"RANK", number(env.rank.value())},
      {"GROUP_RANK", number(env.group_rank.value())},
      {"ROLE_RANK", number(env.role_rank)},
      {"ROLE_NAME", env.role_name},
      {"LOCAL_WORLD_SIZE", number(env.local_world_size)},
      {"WORLD_SIZE", number(env.world_size)},
      {"GROUP_WORLD_SIZE", number(env.group_world_size)},
      {"ROLE_WORLD_SIZE", number(env.role_world_size)},
      {"MASTER_ADDR", env.master_addr},
      {"MASTER_PORT", number(env.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", number(env.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", number(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", env.agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", env.error_file},
      {"DDPRUN_ROUND", number(env.round.value())},
  };
  if (env.virtual_local_rank) vars.emplace_back("DDPRUN_LOCAL_RANK", number(env.local_rank.value()));
  if (!env.agent_socket.empty()) vars.emplace_back("DDPRUN_AGENT_SOCKET", env.agent_socket);
  if (!env.node_addr.empty()) vars.emplace_back("DDPRUN_NODE_ADDR", env.node_addr);
  if (env.lease > Duration::zero()) vars.emplace_back("DDPRUN_LEASE_MS", number(ToMillis(env.lease)));
  return vars;
}

absl::StatusOr<WorkerEnv> DecodeWorkerEnv(const Getter& get) {
  WorkerEnv env;
  const auto text = [&](absl::string_view name) { return get(name).value_or(""); };
  ASSIGN_OR_RETURN(env.world_size, Number(get, "WORLD_SIZE", 1, 1, kMaxWorld));
  ASSIGN_OR_RETURN(env.local_world_size, Number(get, "LOCAL_WORLD_SIZE", 1, 1, env.world_size));
  ASSIGN_OR_RETURN(env.group_world_size, Number(get, "GROUP_WORLD_SIZE", 1, 1, env.world_size));
  ASSIGN_OR_RETURN(env.role_world_size, Number(get, "ROLE_WORLD_SIZE", env.world_size, 1, env.world_size));
  ASSIGN_OR_RETURN(const int rank, Number(get, "RANK", 0, 0, env.world_size - 1));
  ASSIGN_OR_RETURN(int local_rank, Number(get, "LOCAL_RANK", 0, 0, env.local_world_size - 1));
  env.virtual_local_rank = get("DDPRUN_LOCAL_RANK").has_value();
  ASSIGN_OR_RETURN(local_rank, Number(get, "DDPRUN_LOCAL_RANK", local_rank, 0, env.local_world_size - 1));
  ASSIGN_OR_RETURN(const int group_rank, Number(get, "GROUP_RANK", 0, 0, env.group_world_size - 1));
  ASSIGN_OR_RETURN(env.role_rank, Number(get, "ROLE_RANK", rank, 0, env.role_world_size - 1));
  ASSIGN_OR_RETURN(env.restart_count, Number(get, "TORCHELASTIC_RESTART_COUNT", 0, 0, kMaxWorld));
  ASSIGN_OR_RETURN(env.max_restarts, Number(get, "TORCHELASTIC_MAX_RESTARTS", 0, 0, kMaxWorld));
  ASSIGN_OR_RETURN(const int round, Number(get, "DDPRUN_ROUND", env.restart_count, 0, INT32_MAX));
  env.rank = Rank(rank);
  env.local_rank = LocalRank(local_rank);
  env.group_rank = GroupRank(group_rank);
  env.round = Round(round);
  env.role_name = get("ROLE_NAME").value_or("default");
  env.master_addr = text("MASTER_ADDR");
  const std::string agent_store = get("TORCHELASTIC_USE_AGENT_STORE").value_or("True");
  if (agent_store != "True" && agent_store != "False")
    return Bad("TORCHELASTIC_USE_AGENT_STORE", agent_store, "True or False");
  env.agent_store = agent_store == "True";
  env.run_id = text("TORCHELASTIC_RUN_ID");
  env.error_file = text("TORCHELASTIC_ERROR_FILE");
  env.agent_socket = text("DDPRUN_AGENT_SOCKET");
  env.node_addr = text("DDPRUN_NODE_ADDR");
  ASSIGN_OR_RETURN(const int lease_ms, Number(get, "DDPRUN_LEASE_MS", 0, 1, INT32_MAX));
  env.lease = milliseconds(lease_ms);
  if (get("MASTER_PORT")) {
    ASSIGN_OR_RETURN(env.master_port, Number(get, "MASTER_PORT", 0, 1, 65535));
  }
  if (env.world_size > 1 && (env.master_addr.empty() || env.master_port == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("WORLD_SIZE=", env.world_size,
                     " but MASTER_ADDR or MASTER_PORT is not set: start the program with ddprun"));
  }
  return env;
}

absl::StatusOr<WorkerEnv> WorkerEnvFromProcess() {
  return DecodeWorkerEnv([](absl::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace ddprun
