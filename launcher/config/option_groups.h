// Reading the options into a LaunchConfig, a group of them in each function and file. Each takes what the
// ones before it have read.
//   Errors: those of ParseCommand.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/job_rules.h"
#include "launcher/cli/options.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/process_inputs.h"

namespace ddprun {

// Nodes; whom Slurm names as theirs.
absl::Status ReadSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Backend, endpoint, who hosts, the job's name.
absl::Status ReadRendezvous(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Restarts, stops, and how workers are placed; not yet what they run.
absl::Status ReadWorkers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The rules of the job that have options of their own: base/job_rules.h lists them.
absl::StatusOr<JobRules> ReadJobRules(const Options& options, int min_nodes, int max_nodes);

// Logs and the console.
absl::Status ReadOutput(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Events, error file, watchdog, health check.
absl::Status ReadObservers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The number of local workers. Asks for the machine's GPUs, so that other errors come first.
absl::Status ReadLocalSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// The program. Looks for files, so that other errors come first.
absl::Status ReadProgram(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

}  // namespace ddprun
