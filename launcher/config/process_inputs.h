// The inputs of option parsing other than the arguments: environment, working directory, files, CPUs, GPUs.
// Injectable for tests.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

struct ProcessInputs {
  std::string cwd;
  std::string ddprun_dir;  // the directory of this binary
  GetEnv get_env;
  ReadFile read_file;  // may truncate content that is longer than a valid configuration file
  int num_cpus = 1;    // CPUs that this process may use
  std::string host_name;
  // See CountGpus.
  std::function<absl::StatusOr<int>(const std::optional<std::string>& visible, bool narrowed)> count_gpus;
  std::function<std::string()> make_uuid;  // returns a random UUID, used as the id of a job without --rdzv-id
  std::optional<ScheduledJob> from_starter = {};  // set if ddprun --hosts has started this process
};

// `say` receives a line for users about what takes long.
ProcessInputs InputsOfThisProcess(std::function<void(absl::string_view)> say);

}  // namespace ddprun
