// Functions that parse the options into a LaunchConfig, one group of options per function and file.
// ParseCommand calls them in a fixed order; each function may use fields that earlier ones have set.
//   Errors: those of ParseCommand.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/job_rules.h"
#include "launcher/cli/options.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/process_inputs.h"

namespace ddprun {

// Number of nodes; the hosts that Slurm lists.
absl::Status ReadSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Backend, endpoint, host of the coordinator, job id.
absl::Status ReadRendezvous(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Job rules, shutdown and placement of workers, but not their program.
absl::Status ReadWorkers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The job rules that have options of their own; see base/job_rules.h.
absl::StatusOr<JobRules> ReadJobRules(const Options& options, int min_nodes, int max_nodes);

// Logs and the console.
absl::Status ReadOutput(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Events, error file, watchdog, health check.
absl::Status ReadObservers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The number of local workers. May count GPUs; called late, so that other errors are reported first.
absl::Status ReadLocalSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The program. Searches for files; called last, so that other errors are reported first.
absl::Status ReadProgram(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

}  // namespace ddprun
