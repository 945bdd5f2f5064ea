// The machine and the process around a command line: what its meaning depends on besides its words.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"

namespace ddprun {

struct ProcessInputs {
  std::string cwd;
  std::string ddprun_dir;
  GetEnv get_env;
  ReadFile read_file;  // no more of it than a configuration may have, and a bit
  int num_cpus = 1;    // that this process may use
  // See CountGpus.
  std::function<absl::StatusOr<int>(const std::optional<std::string>& visible)> count_gpus;
  std::function<std::string()> make_uuid;  // random, as in "8f3c1e0a-...": the id of a job without a name
};

// Those of this process.
ProcessInputs InputsOfThisProcess();

}  // namespace ddprun
