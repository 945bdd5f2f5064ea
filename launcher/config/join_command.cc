#include "launcher/config/join_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/config/program.h"

namespace ddprun {
namespace {

// Returns the options that differ from their defaults, except those that JoinCommand always adds.
std::string RuleOptions(const LaunchConfig& config) {
  const JobRules defaults;
  std::string options;
  const auto add = [&](absl::string_view name, const auto& value) {
    absl::StrAppend(&options, " --", name, "=", value);
  };
  for (const JobRuleField& field : JobRuleFields()) {
    const bool plain = field.has_plain_option() && field.option != "max-restarts";
    if (plain && field.get(config.rules) != field.get(defaults))
      add(field.option, RuleText(field, config.rules));
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
  std::string command = absl::StrCat("ddprun --nnodes=", config.min_nodes, ":", config.max_nodes,
                                     " --max-restarts=", config.rules.max_restarts,
                                     " --rdzv-backend=c10d --rdzv-endpoint=", ToString(coordinator),
                                     " --rdzv-id=", ShellWord(config.run_id),
                                     " --nproc-per-node=", config.num_local_workers, RuleOptions(config));
  for (const std::string& word : config.program.typed) absl::StrAppend(&command, " ", ShellWord(word));
  return command;
}

}  // namespace ddprun
