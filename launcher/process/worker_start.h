// Starts one worker: fork, then everything that must be right before exec. For the warden: one thread, small.
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/process/warden_protocol.h"
#include "os/unique_fd.h"

namespace ddprun {

struct WorkerCommand {
  const char* cwd = "";             // empty: where the warden is
  const char* file = nullptr;       // what is run, as execve takes it
  char* const* argv = nullptr;      // ends with a null pointer
  char* const* env = nullptr;       // whole environment; ends with a null pointer
  const cpu_set_t* cpus = nullptr;  // null: all that the warden may use
  const rlimit* files = nullptr;    // limit of open files; null: that of the warden
  int stdio[3] = {-1, -1, -1};      // > 3; become 0, 1, 2; all others are closed
};

struct StartFailure {
  warden_protocol::StartStage stage;
  int error;  // errno
};

struct StartingWorker {
  pid_t pid = -1;             // -1: not even forked
  UniqueFd exec_result = {};  // non-blocking; see ReadStartResult
  int error = 0;              // errno when pid is -1
};

// Returns at once; exec may take its time (a program on a slow file system) and its result is read later.
// The worker leads a session and a process group of its own (its pid names both), has default dispositions
// and an empty mask for all signals, and gets SIGKILL when the calling thread ends. Before it does anything
// that may take its time it closes all that it has inherited, so that one that hangs holds nothing of the
// warden's, and takes the name of its program.
StartingWorker StartWorker(const WorkerCommand& command);

enum class StartState { kPending, kRunning, kFailed };

// What became of exec. kFailed fills `failure`; the process is gone or about to be, and still to be waited
// for. A worker killed before exec counts as running.
StartState ReadStartResult(int exec_result, StartFailure& failure);

// Why a worker could not be started, in words that say what to do.

// `error` is the errno of `stage`. Looks at the files to tell causes apart that share an errno (a missing
// program and a missing interpreter of it).
//   Returns: kNotFound, kPermissionDenied, kInvalidArgument (the program or its arguments cannot run here),
//            kResourceExhausted (processes, memory, descriptors), kCancelled (everything is being killed),
//            kInternal otherwise.
absl::Status StartError(warden_protocol::StartStage stage, int error, absl::string_view program,
                        absl::string_view cwd);

}  // namespace ddprun
