// How a worker is started, for people who want to start it by hand.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/worker_env.h"

namespace ddprun {

// A command for a shell, over several lines, the last with its newline: taskset for `cpus`, if there are any,
// env with what differs between `own` and `worker`, `argv`.
//   own: the environment of the shell; worker: all of the worker's.
std::string WorkerCommandText(const EnvVars& own, const EnvVars& worker, const std::vector<std::string>& argv,
                              const std::set<int>& cpus);

}  // namespace ddprun
