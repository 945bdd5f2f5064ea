#include "launcher/config/launch_config.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

absl::StatusOr<Command> ReadStore(const Options& options) {
  if (!options.program().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--store-only runs no program, but ", options.program()[0], " was given"));
  }
  if (options.Get("host").empty()) return BadValue(options, "host", "a host name or address");
  StoreConfig store = {.host = options.Get("host"), .record = options.Get("record")};
  ASSIGN_OR_RETURN(store.port, WholeNumber(options, "port", 0, 65535, "a port from 0 to 65535"));
  return store;
}

absl::StatusOr<Command> ReadCompletion(const Options& options) {
  const std::string& shell = options.Get("print-completion");
  if (shell != "bash" && shell != "zsh" && shell != "tcsh") {
    return BadValue(options, "print-completion", "bash, zsh or tcsh");
  }
  return ShowCompletion{shell};
}

}  // namespace

absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& args, const ProcessInputs& inputs) {
  ASSIGN_OR_RETURN(Options options, ParseOptions(args, inputs.get_env, inputs.read_file));
  if (options.IsSet("help")) return ShowHelp{};
  if (options.IsSet("version")) return ShowVersion{};
  if (options.IsGiven("print-completion")) return ReadCompletion(options);
  if (options.IsSet("store-only")) return ReadStore(options);
  if (options.IsGiven("ssh-command") && !options.IsGiven("hosts")) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.Quote("ssh-command"), " can be used only with --hosts"));
  }
  for (const char* name : {"host", "port"}) {
    if (options.IsGiven(name)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " can be used only with --store-only"));
    }
  }
  if (options.IsGiven("hosts") && !inputs.from_starter) return ReadHosts(options, inputs);
  LaunchConfig config;
  config.dry_run = options.IsSet("dry-run");
  RETURN_IF_ERROR(UseScheduler(inputs, options, config));
  RETURN_IF_ERROR(ReadSize(options, inputs, config));
  RETURN_IF_ERROR(ReadRendezvous(options, inputs, config));
  RETURN_IF_ERROR(ReadWorkers(options, inputs, config));
  RETURN_IF_ERROR(ReadQuorum(options, config));
  RETURN_IF_ERROR(ReadOutput(options, inputs, config));
  RETURN_IF_ERROR(ReadObservers(options, inputs, config));
  RETURN_IF_ERROR(ReadLocalSize(options, inputs, config));
  RETURN_IF_ERROR(ReadProgram(options, inputs, config));
  return config;
}

}  // namespace ddprun
