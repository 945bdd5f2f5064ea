// What the user asked for, understood and checked: plain values, nothing left to guess.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "launcher/config/elastic_rules.h"
#include "launcher/config/endpoint.h"
#include "launcher/config/exit_code.h"
#include "launcher/config/options.h"
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

struct LaunchConfig {
  // Size.
  int min_nodes = 1;
  int max_nodes = 1;  // >= min_nodes
  int num_local_workers = 1;
  ElasticRules rules;
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
  std::string role = "default";
  int max_restarts = 0;
  Duration shutdown_timeout = seconds(30);  // between the launcher's signal and SIGKILL
  ExitCodes exit_codes = ExitCodes::kTorchrun;

  // Their output.
  std::string log_dir;     // empty: a new one below the temporary directory; "/dev/null": no files at all
  StreamChoice redirects;  // to files; those of `tee` included
  StreamChoice tee;        // to files and to the console

  std::vector<std::string> warnings;  // one sentence each, to be shown once
};

// --store-only: a coordinator and store alone.
struct StoreConfig {
  std::string host;
  int port = 0;  // 0: a free one
};

struct ShowHelp {};
struct ShowVersion {};

using Command = std::variant<LaunchConfig, StoreConfig, ShowHelp, ShowVersion>;

// What the command line means depends on these facts of the machine.
struct Surroundings {
  std::string cwd;
  std::string ddprun_dir;
  GetEnv get_env;
  int num_cpus = 1;                                 // that this process may use
  std::function<absl::StatusOr<int>()> count_gpus;  // see CountGpus
  std::function<std::string()> make_uuid;  // random, as in "8f3c1e0a-...": the id of a job without a name
};

// Those of this process.
Surroundings RealSurroundings();

// Reads the command line (without the program's own name).
//   Errors: kInvalidArgument: a usage error, one sentence with the option, its value and what is expected;
//   the
//           program ends with 2. kNotFound, kFailedPrecondition: the command is right, but a program is
//           missing, or GPUs are asked for where there are none; the program ends with 1.
absl::StatusOr<Command> ParseCommand(const std::vector<std::string>& args, const Surroundings& surroundings);

}  // namespace ddprun
