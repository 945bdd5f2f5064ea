#include "base/worker_env.h"

#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>

namespace ddprun {
namespace {

using Getter = std::function<std::optional<std::string>(std::string_view)>;

constexpr int kMaxWorld = 1 << 24;

// Reads variables. After the first error, `error()` describes it, and the results of later calls are useless.
class Reader {
 public:
  explicit Reader(const Getter& get) : get_(get) {}

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] bool Has(std::string_view name) const { return get_(name).has_value(); }
  [[nodiscard]] std::string Text(std::string_view name, const char* fallback = "") const {
    return get_(name).value_or(fallback);
  }

  // The number in variable `name`, or `fallback` if it is not set.
  int Number(std::string_view name, int fallback, int min, int max) {
    const std::optional<std::string> text = get_(name);
    if (!text) return fallback;
    int value = 0;
    const auto [end, result] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (result == std::errc() && end == text->data() + text->size() && value >= min && value <= max)
      return value;
    Fail(name, *text, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return fallback;
  }

  // The boolean in variable `name`, written as Python writes it; true if it is not set.
  bool Bool(std::string_view name) {
    const std::string text = Text(name, "True");
    if (text != "True" && text != "False") Fail(name, text, "True or False");
    return text == "True";
  }

 private:
  void Fail(std::string_view name, const std::string& value, const std::string& want) {
    if (!error_.empty()) return;
    error_ = std::string(name) + "=\"" + value + "\" in the environment: expected " + want;
  }

  const Getter& get_;
  std::string error_;
};

}  // namespace

EnvVars EncodeWorkerEnv(const WorkerEnv& env) {
  const auto number = [](auto n) { return std::to_string(n); };
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

std::optional<WorkerEnv> DecodeWorkerEnv(const Getter& get, std::string* error) {
  Reader read(get);
  WorkerEnv env;
  env.world_size = read.Number("WORLD_SIZE", 1, 1, kMaxWorld);
  env.local_world_size = read.Number("LOCAL_WORLD_SIZE", 1, 1, env.world_size);
  env.group_world_size = read.Number("GROUP_WORLD_SIZE", 1, 1, env.world_size);
  env.role_world_size = read.Number("ROLE_WORLD_SIZE", env.world_size, 1, env.world_size);
  const int rank = read.Number("RANK", 0, 0, env.world_size - 1);
  env.rank = Rank(rank);
  env.virtual_local_rank = read.Has("DDPRUN_LOCAL_RANK");
  const int local_rank = read.Number("LOCAL_RANK", 0, 0, env.local_world_size - 1);
  env.local_rank = LocalRank(read.Number("DDPRUN_LOCAL_RANK", local_rank, 0, env.local_world_size - 1));
  env.group_rank = GroupRank(read.Number("GROUP_RANK", 0, 0, env.group_world_size - 1));
  env.role_rank = read.Number("ROLE_RANK", rank, 0, env.role_world_size - 1);
  env.restart_count = read.Number("TORCHELASTIC_RESTART_COUNT", 0, 0, INT_MAX);
  env.max_restarts = read.Number("TORCHELASTIC_MAX_RESTARTS", 0, 0, INT_MAX);
  env.round = Round(read.Number("DDPRUN_ROUND", env.restart_count, 0, INT_MAX));
  env.role_name = read.Text("ROLE_NAME", "default");
  env.master_addr = read.Text("MASTER_ADDR");
  env.agent_store = read.Bool("TORCHELASTIC_USE_AGENT_STORE");
  env.run_id = read.Text("TORCHELASTIC_RUN_ID");
  env.error_file = read.Text("TORCHELASTIC_ERROR_FILE");
  env.agent_socket = read.Text("DDPRUN_AGENT_SOCKET");
  env.node_addr = read.Text("DDPRUN_NODE_ADDR");
  env.lease = milliseconds(read.Number("DDPRUN_LEASE_MS", 0, 1, INT_MAX));
  env.master_port = read.Number("MASTER_PORT", 0, 1, 65535);
  *error = read.error();
  if (error->empty() && env.world_size > 1 && (env.master_addr.empty() || env.master_port == 0)) {
    *error = "WORLD_SIZE=" + std::to_string(env.world_size) +
             " but MASTER_ADDR or MASTER_PORT is not set: start the program with ddprun";
  }
  if (!error->empty()) return std::nullopt;
  return env;
}

std::optional<WorkerEnv> WorkerEnvFromProcess(std::string* error) {
  return DecodeWorkerEnv(
      [](std::string_view name) -> std::optional<std::string> {
        const char* value = std::getenv(std::string(name).c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      },
      error);
}

}  // namespace ddprun
