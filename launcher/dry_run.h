// --dry-run: prints the commands that a launch would start on this node, with their environment.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/worker_env.h"
#include "launcher/config/launch_config.h"

namespace ddprun {

// Facts about this machine that a launch depends on.
struct DryRunFacts {
  EnvVars launcher_env = {};             // environment of this process
  EnvVars base = {};                     // see BaseEnvironment
  std::vector<std::set<int>> cpus = {};  // see WorkerCpus
  std::optional<bool> hosts = {};  // whether the endpoint names this node; nullopt: unknown without a lookup
  std::string temporary_dir = {};  // parent of new log directories and watchdog FIFOs
  std::string interface_address = {};  // address of the interface that --local-addr names; empty: none
};

// Resolves no names, opens no ports and creates no files.
//   Errors: those with which a launch fails if GPUs, CPUs or a temporary directory are not available.
//   say: receives a line if NVIDIA's driver is slow.
absl::StatusOr<DryRunFacts> GatherDryRunFacts(const LaunchConfig& config,
                                              const std::function<void(absl::string_view)>& say);

// Returns a text for people that is also a valid shell script: comments that describe the job, then one
// command for each worker of this node, with the worker's arguments, its CPUs, and the variables that differ
// from the launcher's environment. Values that nodes receive only in the rendezvous are shown for an assumed
// case, which the text states, or as placeholders in <angle brackets>.
std::string DryRunText(const LaunchConfig& config, const DryRunFacts& facts);

}  // namespace ddprun
