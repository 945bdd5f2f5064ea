#include "launcher/dry_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/assignment.h"
#include "base/exit_info.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/driver_call.h"
#include "launcher/config/program.h"
#include "launcher/hosting.h"
#include "launcher/logs/log_layout.h"
#include "launcher/numa/binding.h"
#include "launcher/workers/worker_environment.h"
#include "net/endpoint.h"
#include "net/local_host.h"
#include "os/files.h"

namespace ddprun {
namespace {

// Replaces control characters, because a shell would run the part of a name that follows a line break.
std::string InOneLine(std::string text) {
  std::replace_if(text.begin(), text.end(), absl::ascii_iscntrl, '?');
  return text;
}

std::string Nodes(const LaunchConfig& config) {
  return absl::StrCat(config.min_nodes == config.max_nodes ? "" : absl::StrCat(config.min_nodes, " to "),
                      Counted(config.max_nodes, "node"), ", with ",
                      Counted(config.num_local_workers, "worker"), " on this node");
}

std::string Meeting(const LaunchConfig& config, const DryRunFacts& facts) {
  if (config.standalone) return "none: this is the only node, and it hosts its own coordinator";
  if (config.backend == Backend::kEtcd) {
    return absl::StrCat("the register of the job is on etcd at ",
                        absl::StrJoin(config.etcd_endpoints, ", ",
                                      [](std::string* out, const Endpoint& e) { *out += ToString(e); }),
                        "; one of the nodes hosts the coordinator at a time");
  }
  const std::string& host = config.endpoint.host;
  if (config.hosting == Hosting::kHere && config.endpoint.port == 0)
    return "a free port of this node, which hosts the coordinator and prints the command to join";
  const std::string place = absl::StrCat(ToString(config.endpoint), "; ");
  switch (config.hosting) {
    case Hosting::kHere:
      return absl::StrCat(place, "this node hosts the coordinator");
    case Hosting::kElsewhere:
      return absl::StrCat(place, "another node hosts the coordinator");
    case Hosting::kByAddress:
      break;
  }
  if (!facts.hosts) return absl::StrCat(place, "the node named ", host, " hosts the coordinator");
  return absl::StrCat(place, *facts.hosts ? "this node (" : "another node (", host,
                      ") hosts the coordinator");
}

std::string Stopping(const LaunchConfig& config) {
  if (config.signals_to_handle.empty())
    return "none are forwarded: a signal to this launcher kills all workers immediately";
  return absl::StrCat("forwarded to the workers: ",
                      absl::StrJoin(config.signals_to_handle, ", ",
                                    [](std::string* out, int signo) { *out += SignalName(signo); }),
                      "; SIGKILL follows after ", config.shutdown_timeout / seconds(1), " s");
}

// The assignment that the text assumes.
Assignment AssumedAssignment(const LaunchConfig& config, const DryRunFacts& facts) {
  Assignment a;
  a.group_world_size = config.min_nodes;
  a.group_rank = GroupRank(std::min(config.node_rank.value_or(0), config.min_nodes - 1));
  const int first = static_cast<int>(a.group_rank.value()) * config.num_local_workers;
  a.first_rank = Rank(first);
  a.first_role_rank = first;
  a.world_size = a.role_world_size = config.min_nodes * config.num_local_workers;
  if (config.backend == Backend::kStatic) {
    a.master_addr = config.endpoint.host;
    a.master_port = config.endpoint.port;
  } else if (!config.local_addr.empty() && a.group_rank == GroupRank(0)) {
    a.master_addr = facts.interface_address.empty() ? config.local_addr : facts.interface_address;
  } else if (config.max_nodes == 1) {
    a.master_addr = "127.0.0.1";
  } else if (a.group_rank != GroupRank(0) || !(config.hosting == Hosting::kHere || facts.hosts == true)) {
    a.master_addr = "<address of node 0>";
  } else {
    const bool given = !config.endpoint.host.empty() && !IsUnspecifiedAddress(config.endpoint.host);
    a.master_addr = given ? config.endpoint.host : "<address of this node>";
  }
  return a;
}

std::string Assumption(const LaunchConfig& config, const Assignment& a) {
  if (config.max_nodes == 1) return "values in <angle brackets> are chosen at launch";
  return absl::StrCat("this is node ", a.group_rank.value(), " of ", a.group_world_size,
                      ", and each node has ", Counted(config.num_local_workers, "worker"),
                      "; ranks and values in <angle brackets> are assigned when the nodes join");
}

bool HasLogFiles(const LaunchConfig& config, const DryRunFacts& facts) {
  return config.log_dir.empty() ? !facts.temporary_dir.empty() : config.log_dir != kLogsOff;
}

std::string AttemptDir(const LaunchConfig& config, const DryRunFacts& facts) {
  if (!HasLogFiles(config, facts)) return "";
  const std::string base =
      config.log_dir.empty() ? absl::StrCat(facts.temporary_dir, "/torchelastic_<random>") : config.log_dir;
  return absl::StrCat(base, "/", RunDirectoryPrefix(config.run_id), "<random>/attempt_0");
}

std::string StreamPlace(absl::string_view name, bool file, bool tee, bool on_console) {
  const absl::string_view console = on_console ? "the console" : "nowhere";
  if (tee) return absl::StrCat(name, " to ", name, ".log", on_console ? " and the console" : "");
  return absl::StrCat(name, " to ", file ? absl::StrCat(name, ".log") : std::string(console));
}

std::string Output(const LaunchConfig& config, const DryRunFacts& facts, LocalRank local_rank) {
  const bool files = HasLogFiles(config, facts);
  const bool on_console =
      !config.console_ranks || config.console_ranks->count(static_cast<int>(local_rank.value())) > 0;
  const Streams redirects = config.redirects.For(local_rank), tee = config.tee.For(local_rank);
  return absl::StrCat(StreamPlace("stdout", files && redirects.out, files && tee.out, on_console), ", ",
                      StreamPlace("stderr", files && redirects.err, files && tee.err, on_console));
}

// The shell command of one worker.
std::string CommandOf(const LaunchConfig& config, const DryRunFacts& facts, const Assignment& assignment,
                      LocalRank local_rank) {
  const std::string attempt = AttemptDir(config, facts);
  WorkerPlaces places{.agent_socket = "<socket of the agent>"};
  if (!attempt.empty()) places.error_file = absl::StrCat(attempt, "/", local_rank.value(), "/error.json");
  if (config.watchdog_fifo) {
    places.timer_file = config.watchdog_fifo->empty()
                            ? absl::StrCat(facts.temporary_dir, "/watchdog_timer_<random>")
                            : *config.watchdog_fifo;
  }
  places.network = {.address = "<address of this node>", .interface = "<interface of that address>"};
  EnvVars env = WorkerEnvironment(facts.base, config, assignment, local_rank, places);
  if (assignment.master_port == 0) {
    for (auto& [name, value] : env) {
      if (name == "MASTER_PORT") value = "<a free port>";
    }
  }
  return WorkerCommandText(facts.launcher_env, env,
                           ArgumentsFor(config.program, local_rank, config.pass_local_rank),
                           facts.cpus[static_cast<size_t>(local_rank.value())]);
}

}  // namespace

absl::StatusOr<DryRunFacts> GatherDryRunFacts(const LaunchConfig& config,
                                              const std::function<void(absl::string_view)>& say) {
  DryRunFacts facts{.launcher_env = BaseEnvironment(LaunchConfig()), .base = BaseEnvironment(config)};
  RETURN_IF_ERROR(CheckVirtualDevices(facts.base, config));
  ASSIGN_OR_RETURN(facts.cpus, AskDriver<std::vector<std::set<int>>>(
                                   [config, base = facts.base] { return WorkerCpus(config, base); }, say));
  facts.hosts = IsThisMachineAtOnce(config.endpoint.host);
  if (config.log_dir.empty()) facts.temporary_dir = TemporaryDirectory().value_or("");
  if (config.watchdog_fifo == "") {
    ASSIGN_OR_RETURN(facts.temporary_dir, TemporaryDirectory());
  }
  facts.interface_address = AddressOfInterface(config.local_addr).value_or("");
  return facts;
}

std::string DryRunText(const LaunchConfig& config, const DryRunFacts& facts) {
  const Assignment assignment = AssumedAssignment(config, facts);
  const std::string attempt = AttemptDir(config, facts);
  std::string text = "# ddprun --dry-run: nothing is started.\n#\n";
  const auto say = [&text](absl::string_view what, const std::string& how) {
    absl::StrAppend(&text, "# ", what, std::string(10 - what.size(), ' '), InOneLine(how), "\n");
  };
  say("job", absl::StrCat(config.run_id, ", role ", config.role, ", ",
                          Counted(config.rules.max_restarts, "restart")));
  if (!config.from_scheduler.empty()) say(config.scheduler, absl::StrJoin(config.from_scheduler, ", "));
  say("size", Nodes(config));
  say("endpoint", Meeting(config, facts));
  say("store", config.agent_store ? "worker store in the launcher on node 0"
                                  : "worker store in the worker with rank 0");
  say("signals", Stopping(config));
  say("files", attempt.empty() ? "none" : absl::StrCat("in ", attempt, "/<local rank>"));
  say("assumed", Assumption(config, assignment));
  for (int i = 0; i < config.num_local_workers; ++i) {
    absl::StrAppend(&text, "\n# local rank ", i, ": rank ", assignment.first_rank.value() + i, " of ",
                    assignment.world_size, ", ", Output(config, facts, LocalRank(i)), "\n",
                    CommandOf(config, facts, assignment, LocalRank(i)));
  }
  return text;
}

}  // namespace ddprun
