#include "launcher/config/join_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/config/shell_word.h"

namespace ddprun {
namespace {

// Those that are not what they are anyhow.
std::string RuleOptions(const LaunchConfig& config) {
  const ElasticRules plain;
  const ElasticRules& rules = config.rules;
  std::string options;
  const auto add = [&](absl::string_view name, const auto& value) {
    absl::StrAppend(&options, " --", name, "=", value);
  };
  const auto in_seconds = [](Duration d) { return static_cast<double>(ToMillis(d)) / 1000; };
  if (rules.node_unit != plain.node_unit) add("node-unit", rules.node_unit);
  if (rules.scale_up != plain.scale_up) add("scale-up", ToString(rules.scale_up));
  if (rules.snapshot_timeout != plain.snapshot_timeout)
    add("snapshot-timeout", in_seconds(rules.snapshot_timeout));
  if (rules.min_uptime != plain.min_uptime) add("min-uptime", in_seconds(rules.min_uptime));
  if (rules.max_restarts_without_progress != plain.max_restarts_without_progress) {
    add("max-restarts-without-progress", rules.max_restarts_without_progress);
  }
  if (config.rdzv.lease != RdzvConf().lease)
    add("rdzv-conf", absl::StrCat("lease_ms=", ToMillis(config.rdzv.lease)));
  if (config.exit_codes == ExitCodes::kScheduler) add("exit-codes", "scheduler");
  if (config.virtual_local_rank) absl::StrAppend(&options, " --virtual-local-rank");
  if (config.pass_local_rank) absl::StrAppend(&options, " --pass-local-rank");
  return options;
}

}  // namespace

std::string JoinCommand(const LaunchConfig& config, const Endpoint& coordinator) {
  std::string command = absl::StrCat(
      "ddprun --nnodes=", config.min_nodes, ":", config.max_nodes, " --max-restarts=", config.max_restarts,
      " --rdzv-backend=c10d --rdzv-endpoint=", ToString(coordinator), " --rdzv-id=", ShellWord(config.run_id),
      " --nproc-per-node=", config.num_local_workers, RuleOptions(config));
  for (const std::string& word : config.program.typed) absl::StrAppend(&command, " ", ShellWord(word));
  return command;
}

}  // namespace ddprun
