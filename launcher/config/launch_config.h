// What the user asked for, understood and checked: plain values, nothing left to guess.
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
#include "launcher/config/endpoint.h"
#include "launcher/config/process_inputs.h"
#include "launcher/config/program.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/config/stream_choice.h"

namespace ddprun {

// Who runs the coordinator.
enum class Hosting {
  kByAddress,  // the node that the endpoint's host names: the agent finds out whether that is this one
  kHere,       // this node, whatever the host is called
  kElsewhere,  // never this node
};

enum class Backend { kStatic, kC10d };

// What a worker's processors are chosen by, around the GPU whose index is its local rank.
enum class NumaBinding {
  kNode,         // all of the GPU's NUMA node
  kSocket,       // all nodes of that node's socket
  kExclusive,    // a share of that node's physical cores, not shared with the other GPUs on it
  kCoreComplex,  // one group of cores that share the largest cache
};

// --event-log-handler
enum class EventHandler { kNull, kConsole };
// --metrics-handler
enum class MetricsHandler { kNull, kConsole };

struct LaunchConfig {
  // Size.
  int min_nodes = 1;
  int max_nodes = 1;  // >= min_nodes
  int num_local_workers = 1;
  // Without what --nnodes and --rdzv-conf say of them.
  JobRules rules;
  // Short names of all hosts of the job, where Slurm tells them; empty: unknown.
  std::vector<std::string> expected_hosts;

  // How nodes meet.
  Backend backend = Backend::kStatic;
  Endpoint endpoint;  // port 0 only with kHere: a free one
  Hosting hosting = Hosting::kByAddress;
  bool standalone = false;  // one node only: nobody is told how to join
  std::string run_id;
  RdzvConf rdzv;
  std::optional<int> node_rank;  // asked for; always set with static
  std::string local_addr;        // empty: this node's full host name

  // Workers.
  WorkerProgram program;
  // Given to workers, over the launcher's own environment and under the job's variables.
  std::vector<std::pair<std::string, std::string>> program_env;
  bool pass_local_rank = false;  // the program's first argument is --local-rank=N
  std::string role = "default";
  Duration shutdown_timeout = seconds(30);  // between a stop's first signal and SIGKILL
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  ExitCodes exit_codes = ExitCodes::kTorchrun;
  bool virtual_local_rank = false;  // each worker sees its own GPU alone, and LOCAL_RANK=0
  std::optional<NumaBinding> numa_binding;
  bool agent_store = true;  // false: rank 0 hosts the worker store itself, on a port that is free now
  // Seconds that a worker may be in uninterruptible sleep before the job ends; none: it is not watched.
  std::optional<Duration> uninterruptible_timeout;

  // Their output.
  std::string log_dir;     // empty: a new one below the temporary directory; "/dev/null": no files at all
  StreamChoice redirects;  // to files; those of `tee` included
  StreamChoice tee;        // to files and to the console
  // Before each line of `tee`; see FormatPrefix. Empty: "[${role_name}${local_rank}]:".
  std::string line_prefix_template;
  std::optional<std::set<int>> console_ranks;  // local ranks whose output reaches the console; none: all
  // Lines of `tee` with one of these in them go to a file of their own too, shared by all ranks.
  std::vector<std::string> stdout_filters;
  std::vector<std::string> stderr_filters;
  int64_t max_log_bytes = 0;  // on disk for each stream of each worker and start; 0: any number

  // What is told to others.
  EventHandler event_handler = EventHandler::kNull;
  MetricsHandler metrics_handler = MetricsHandler::kNull;
  std::string own_error_file;  // the launcher's TORCHELASTIC_ERROR_FILE: gets the root cause's; empty: none
  // Where workers tell their timers; empty: a FIFO below the temporary directory.
  std::optional<std::string> watchdog_fifo;  // none: no watchdog
  std::optional<int> health_check_port;      // 0: a free one

  std::string record;  // where a coordinator of this node records what it is told; empty: nowhere

  bool dry_run = false;  // only say what would be started

  std::vector<std::string> warnings;  // one sentence each, to be shown once
};

// --store-only: a coordinator and store alone.
struct StoreConfig {
  std::string host;
  int port = 0;        // 0: a free one
  std::string record;  // as LaunchConfig::record
};

struct ShowHelp {};
struct ShowVersion {};
struct ShowCompletion {
  std::string shell;  // bash, zsh or tcsh
};

using Command = std::variant<LaunchConfig, StoreConfig, ShowHelp, ShowVersion, ShowCompletion>;

// Reads the command line (without the program's own name).
//   Errors: kInvalidArgument: a usage error, one sentence with the option, its value and what is expected;
//           the program ends with 2. kNotFound, kFailedPrecondition: the command is right, but a program is
//           missing, or GPUs are asked for where there are none; the program ends with 1.
absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& args, const ProcessInputs& inputs);

}  // namespace ddprun
