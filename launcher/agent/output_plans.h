// What is to be done with the output of the workers of one start: the configuration, applied.
#pragma once

#include <string>

#include "base/assignment.h"
#include "base/ids.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/worker_output.h"

namespace ddprun {

class OutputPlans {
 public:
  // All is borrowed.
  //   hostname: for prefixes.
  OutputPlans(const LaunchConfig& config, const Assignment& assignment, std::string hostname);

  // Files are left out.
  WorkerOutput::Plan For(LocalRank local_rank) const;

 private:
  bool Shows(LocalRank local_rank) const;

  const LaunchConfig& config_;
  const Assignment& assignment_;
  const std::string hostname_;
  int num_shown_ = 0;  // workers
};

}  // namespace ddprun
