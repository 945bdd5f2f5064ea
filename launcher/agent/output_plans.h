// What is to be done with the output of the workers of one start: the configuration, applied.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/ids.h"
#include "launcher/config/launch_config.h"
#include "launcher/logs/filtered_log.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"

namespace ddprun {

class OutputPlans {
 public:
  // Opens the files for filtered lines, if there are filters and files. One that cannot be opened is told to
  // `warn`, and done without. All but `warn` are borrowed.
  //   hostname: for prefixes.
  OutputPlans(const LaunchConfig& config, const Assignment& assignment, const AttemptFiles& files,
              std::string hostname, std::function<void(const absl::Status&)> warn);

  WorkerOutput::Plan For(LocalRank local_rank) const;

 private:
  std::shared_ptr<FilteredLog> OpenFiltered(const std::string& path,
                                            const std::vector<std::string>& filters) const;

  const LaunchConfig& config_;
  const Assignment& assignment_;
  const AttemptFiles& files_;
  const std::string hostname_;
  const std::function<void(const absl::Status&)> warn_;
  const std::shared_ptr<FilteredLog> filtered_stdout_;
  const std::shared_ptr<FilteredLog> filtered_stderr_;
};

}  // namespace ddprun
