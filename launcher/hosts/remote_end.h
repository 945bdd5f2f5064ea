// The agent's end of --hosts: reads what the starter sends through ssh.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/scheduler/scheduled_job.h"
#include "os/descriptor.h"

namespace ddprun {

struct RemoteStart {
  std::vector<std::string> arguments;  // of ddprun, without argv[0]
  ScheduledJob job;
  UniqueFd life_line;  // the rest of the stream
};

// Reads the message of the starter from stdin, changes the environment and the working directory of this process, and prints
// kStartedLine on stdout. stdin becomes /dev/null. Blocks for at most 60 s.
//   Order:   before this process has a second thread.
//   Errors:  kInvalidArgument: not a message; kDeadlineExceeded, kUnavailable: the starter has ended before the message was
//            complete; kNotFound and others of chdir: the working directory cannot be used here.
absl::StatusOr<RemoteStart> ReceiveStart();

// Starts a thread that gives this process the signals that the starter passes on, and SIGTERM when the starter has ended, the
// connection is lost, or nothing was received for kSilenceLimit. The thread runs until this process exits.
//   Order: after HoldSignals() and StartWarden().
void FollowLifeLine(UniqueFd life_line);

}  // namespace ddprun
