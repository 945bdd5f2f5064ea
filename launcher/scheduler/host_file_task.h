// What PBS and LSF say about the job that this process belongs to: a file with its hosts.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/options.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

// Reads the environment of a task of PBS, which pbsdsh starts, and its PBS_NODEFILE. Returns nullopt in the script or the
// shell of the job itself, which runs on the first host only: there ddprun runs on this node only, as torchrun does.
//   host: the name of this host, with or without its domain.
//   Errors: kInvalidArgument: the file cannot be read or does not contain this host; the message has the variable, its value,
//           and the remedy.
absl::StatusOr<std::optional<ScheduledJob>> FindPbsTask(const GetEnv& get_env, const ReadFile& read_file,
                                                        const std::string& host);

// Reads the environment of a task of LSF, which blaunch starts, and its LSB_DJOB_HOSTFILE. As above.
absl::StatusOr<std::optional<ScheduledJob>> FindLsfTask(const GetEnv& get_env, const ReadFile& read_file,
                                                        const std::string& host);

}  // namespace ddprun
