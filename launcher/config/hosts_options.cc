#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/shell_words.h"
#include "launcher/hosts/start_message.h"

namespace ddprun {
namespace {

absl::Status Contradicts(const Options& options, absl::string_view name, absl::string_view instead) {
  return absl::InvalidArgumentError(absl::StrCat("--hosts contradicts ", options.Quote(name), ": ", instead));
}

absl::Status CheckOtherOptions(const Options& options) {
  if (options.IsSet("standalone")) {
    return Contradicts(options, "standalone",
                       "give only --hosts, or only --standalone for a job on this machine");
  }
  if (options.IsGiven("node-rank")) {
    return Contradicts(options, "node-rank",
                       "the hosts have the ranks of their order in --hosts; omit --node-rank");
  }
  for (const char* const name : {"master-addr", "master-port"}) {
    if (!options.IsGiven(name)) continue;
    return Contradicts(
        options, name,
        "the coordinator is on the first host; omit the option, or give --rdzv-endpoint=HOST:PORT "
        "to choose its port");
  }
  if (options.IsGiven("rdzv-backend") && options.Get("rdzv-backend") != "c10d") {
    return Contradicts(options, "rdzv-backend", "--hosts uses c10d; omit the option");
  }
  if (!options.program().empty() && options.program()[0] == "-") {
    return absl::InvalidArgumentError(
        "with --hosts, the program cannot be read from stdin (-): give the path of a file that exists on all "
        "hosts");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Command> ReadHosts(const Options& options, const ProcessInputs& inputs) {
  HostsConfig config;
  config.run_id = inputs.make_uuid();
  ASSIGN_OR_RETURN(config.hosts, ParseHosts(options.Get("hosts")), options.Quote("hosts"));
  ASSIGN_OR_RETURN(config.ssh, SplitShellWords(options.Get("ssh-command")), options.Quote("ssh-command"));
  if (config.ssh.empty()) return BadValue(options, "ssh-command", "a command, such as ssh -F config");
  RETURN_IF_ERROR(CheckOtherOptions(options));

  ProcessInputs of_agent = inputs;
  of_agent.from_starter = JobOfHosts(config.hosts, 0, config.run_id);
  Options its_options = options;
  LaunchConfig& job = config.job;
  job.dry_run = options.IsSet("dry-run");
  RETURN_IF_ERROR(UseScheduler(of_agent, its_options, job));
  RETURN_IF_ERROR(ReadSize(its_options, of_agent, job));
  const int num_hosts = static_cast<int>(config.hosts.size());
  if (num_hosts < job.min_nodes || num_hosts > job.max_nodes) {
    return Contradicts(options, "nnodes",
                       absl::StrCat("the list has ", num_hosts, num_hosts == 1 ? " host" : " hosts",
                                    "; omit --nnodes, or give a range that contains this number"));
  }
  RETURN_IF_ERROR(ReadRendezvous(its_options, of_agent, job));
  RETURN_IF_ERROR(ReadWorkers(its_options, of_agent, job));
  RETURN_IF_ERROR(ReadQuorum(its_options, job));
  RETURN_IF_ERROR(ReadOutput(its_options, of_agent, job));
  RETURN_IF_ERROR(ReadObservers(its_options, of_agent, job));
  return config;
}

}  // namespace ddprun
