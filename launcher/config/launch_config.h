// The validated configuration of a launch, as plain values.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "launcher/cli/exit_code.h"
#include "launcher/cli/options.h"
#include "launcher/config/process_inputs.h"
#include "launcher/config/program.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/config/stream_choice.h"
#include "launcher/hosts/host_list.h"
#include "net/endpoint.h"

namespace ddprun {

// Which node hosts the coordinator.
enum class Hosting {
  kByAddress,  // the node at the endpoint's address; the launcher checks whether it is this node
  kHere,       // this node, regardless of the endpoint's host
  kElsewhere,  // another node
};

// The CPUs of a worker, relative to the GPU whose index is its local rank.
enum class NumaBinding {
  kNode,         // all CPUs of the GPU's NUMA node
  kSocket,       // all CPUs of that NUMA node's socket
  kExclusive,    // a share of that NUMA node's physical cores, for this GPU only
  kCoreComplex,  // one group of cores that share the largest cache
};

// --event-log-handler
enum class EventHandler { kNull, kConsole };
// --metrics-handler
enum class MetricsHandler { kNull, kConsole };

// A signal of --preempt-signal, and how long after it the node goes away.
struct PreemptSignal {
  int signo = 0;
  Duration left{};

  bool operator==(const PreemptSignal&) const = default;
};

struct LaunchConfig {
  // Size.
  int min_nodes = 1;
  int max_nodes = 1;  // >= min_nodes
  int num_local_workers = 1;
  bool counts_gpus = false;  // num_local_workers is the number of GPUs of this machine that workers can use
  // The rules that have their own options; the rules from --nnodes and --rdzv-conf are in other members.
  JobRules rules;
  // Name of the scheduler or launcher whose values are used, such as Slurm; empty: none. See ScheduledJob.
  std::string scheduler;
  // What it has set, for --dry-run: "--nnodes=4 (SLURM_STEP_NUM_NODES)".
  std::vector<std::string> from_scheduler;
  std::string host_name;  // this node's short name in the scheduler; empty: the name that the machine has
  // Short names of all hosts of the job, from the scheduler; empty: unknown.
  std::vector<std::string> expected_hosts;
  // kExpected: no agents other than those that the scheduler has started can find the job.
  Admission admission = Admission::kOpen;

  // Rendezvous.
  Backend backend = Backend::kStatic;
  Endpoint endpoint;  // port 0 means any free port, and requires kHere
  // With --quorum=voters: all endpoints, of which `endpoint` is the first one; an agent must run at each of them when the job starts.
  // Otherwise that one alone, or empty.
  std::vector<Endpoint> endpoints;
  // etcd only: all endpoints of the service. There is no other endpoint then, and `hosting` has no meaning.
  std::vector<Endpoint> etcd_endpoints;
  // The ports on which the coordinator may be, if a scheduler started the job; the first one is endpoint.port. The node
  // that hosts it takes the first free one.
  std::vector<int> candidate_ports;
  // Further addresses of the host of the endpoint, from the scheduler.
  std::vector<std::string> candidate_hosts;
  Hosting hosting = Hosting::kByAddress;
  bool standalone = false;  // one node only: no join command is printed
  std::string run_id;
  RdzvConf rdzv;
  std::optional<int> node_rank;  // requested rank; always set with kStatic
  std::string local_addr;        // empty: the address from which this node reaches the coordinator

  // Workers.
  WorkerProgram program;
  // Variables for workers. They take precedence over the launcher's environment, but not over the variables
  // that the launcher sets for workers.
  std::vector<std::pair<std::string, std::string>> program_env;
  bool pass_local_rank = false;  // the program's first argument is --local-rank=N
  std::string role = "default";
  Duration shutdown_timeout = seconds(30);  // between the first signal and SIGKILL
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  std::vector<PreemptSignal> preempt_signals;  // the first one is passed on to the workers
  ExitCodes exit_codes = ExitCodes::kTorchrun;
  bool virtual_local_rank = false;  // each worker sees only its own GPU, and LOCAL_RANK=0
  std::optional<NumaBinding> numa_binding;
  bool agent_store = true;  // false: the worker with rank 0 hosts the worker store; see WorkerHostedStores
  // How long a worker may be in uninterruptible sleep before it counts as stuck, which ends the job; nullopt:
  // not monitored.
  std::optional<Duration> uninterruptible_timeout;

  // Worker output.
  std::string log_dir;     // empty: a new directory in the temporary directory; "/dev/null": no files
  StreamChoice redirects;  // streams written to files, including those of `tee`
  StreamChoice tee;        // streams written to files and to the console
  // Prefix of each line that --tee writes to the console; see FormatPrefix. Empty:
  // "[${role_name}${local_rank}]:".
  std::string line_prefix_template;
  // Local ranks whose output is shown on the console; nullopt: all.
  std::optional<std::set<int>> console_ranks;
  // Each line that --tee writes and that contains one of these strings is also written to a file that all
  // ranks share.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  // Maximum size on disk of each stream of each worker, for each start of the workers; 0: no limit.
  int64_t max_log_bytes = 0;

  // Events, metrics and recording.
  EventHandler event_handler = EventHandler::kNull;
  MetricsHandler metrics_handler = MetricsHandler::kNull;
  // The launcher's TORCHELASTIC_ERROR_FILE, to which the root cause is written; empty: none.
  std::string own_error_file;
  // Path of the FIFO for the workers' watchdog timers. Empty: a FIFO in the temporary directory. nullopt: no
  // watchdog.
  std::optional<std::string> watchdog_fifo;
  std::optional<int> health_check_port;  // 0: any free port; nullopt: no health check

  std::string record;  // file for the recording of a coordinator on this node; empty: no recording

  bool dry_run = false;  // only print the commands that would be started

  std::vector<std::string> warnings;  // for users, one sentence each

  // Whether nodes of the job, the voters, keep its register.
  bool has_voters() const {
    return backend == Backend::kC10d && max_nodes > 1 && rules.quorum == Quorum::kVoters;
  }
  bool has_register() const { return has_voters() || backend == Backend::kEtcd; }
};

// --store-only: a coordinator with its store, without an agent.
struct StoreConfig {
  std::string host;
  int port = 0;        // 0: any free port
  std::string record;  // like LaunchConfig::record
};

// --hosts: starts the agents of a job over ssh.
struct HostsConfig {
  std::vector<HostSlots> hosts;  // not empty
  std::vector<std::string> ssh;  // the words of --ssh-command; not empty
  std::string run_id;            // a random id, which --rdzv-id replaces
  // As the agent of the first host will see it, without its program and the number of its workers.
  LaunchConfig job;
};

struct ShowHelp {};
struct ShowVersion {};
struct ShowCompletion {
  std::string shell;  // bash, zsh or tcsh
};

using Command = std::variant<LaunchConfig, StoreConfig, HostsConfig, ShowHelp, ShowVersion, ShowCompletion>;

// Parses the command line (without argv[0]).
//   Errors: kInvalidArgument: a usage error. The message is one sentence with the option, its value and the
//           expected form; the launcher exits with 2. kNotFound, kFailedPrecondition: the usage is correct,
//           but the program cannot be run, or GPUs are requested and there are none; the launcher exits
//           with 1.
absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& args, const ProcessInputs& inputs);

}  // namespace ddprun
