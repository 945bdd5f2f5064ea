// --dry-run: what a launch would start here, where, and with which environment.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// What a launch would find on this machine.
struct DryRunFacts {
  EnvVars launcher_env = {};             // of this process
  EnvVars base = {};                     // see BaseEnvironment
  std::vector<std::set<int>> cpus = {};  // see WorkerCpus
  std::optional<bool> hosts = {};        // the endpoint names this node; none: only a name server knows
  std::string temporary_dir = {};        // for files without --log-dir
  std::string interface_address = {};    // of the interface that --local-addr names; empty: it names none
};

// Asks no name server, opens no port, makes no file.
//   Errors: those of a launch, where workers could not get their devices or processors.
absl::StatusOr<DryRunFacts> GatherDryRunFacts(const LaunchConfig& config);

// A text for people that is also one for a shell: about the job in comments, then a command for each worker
// of this node with its arguments, its processors, and the variables that differ from the launcher's own.
// What is decided only when nodes meet is shown for a case that it names, or in <angle brackets>.
std::string DryRunText(const LaunchConfig& config, const DryRunFacts& facts);

}  // namespace ddprun
