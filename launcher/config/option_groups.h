// Functions that parse the options into a LaunchConfig, one group of options per function. ParseCommand calls
// the functions in the order below; each function may use fields that earlier functions have set.
//   Errors: those of ParseCommand.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/job_rules.h"
#include "launcher/cli/options.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/process_inputs.h"

namespace ddprun {

// Offers what the scheduler says about the job to options that the user has not given.
absl::Status UseScheduler(const ProcessInputs& inputs, Options& options, LaunchConfig& config);

// Whether this is a name of the back end with a register on etcd. Both of torchrun's names are for the same service here.
inline bool IsEtcd(absl::string_view backend) { return backend == "etcd" || backend == "etcd-v2"; }

// Reads the number of nodes, and the hosts of the job.
absl::Status ReadSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Reads the backend, the endpoint, the host of the coordinator, and the job id.
absl::Status ReadRendezvous(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Decides whether nodes keep the register of the job, as is the default if they can. REQUIRES: ReadWorkers was called.
absl::Status ReadQuorum(const Options& options, LaunchConfig& config);

// Reads the job rules and the options for starting, placing and stopping workers, but not their program.
absl::Status ReadWorkers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Reads the job rules that have options of their own; see base/job_rules.h. Called by ReadWorkers.
absl::StatusOr<JobRules> ReadJobRules(const Options& options, int min_nodes, int max_nodes);

// Reads the options for log files and the console.
absl::Status ReadOutput(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Reads the settings of events, metrics, the recording, the error file, the watchdog and the health check.
absl::Status ReadObservers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Reads the number of local workers. May count GPUs. Called late, so that other errors are reported first.
absl::Status ReadLocalSize(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// Reads the program, and searches for its file. Called last, so that other errors are reported first.
absl::Status ReadProgram(const Options& options, const ProcessInputs& inputs, LaunchConfig& config);

// For --hosts, instead of the functions above: reads --hosts and --ssh-command, and checks the options for the agents, so that
// each error is reported once. The agents read the number of workers and the program.
absl::StatusOr<Command> ReadHosts(const Options& options, const ProcessInputs& inputs);

}  // namespace ddprun
