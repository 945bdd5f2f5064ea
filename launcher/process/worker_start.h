// Starts one worker: fork, setup of the child, exec. For the warden only: it forks a single-threaded process.
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/process/warden_protocol.h"
#include "os/descriptor.h"

namespace ddprun {

struct WorkerCommand {
  const char* cwd = "";             // empty: the warden's
  const char* file = nullptr;       // path of the program, as for execve
  char* const* argv = nullptr;      // null-terminated
  char* const* env = nullptr;       // complete environment; null-terminated
  const cpu_set_t* cpus = nullptr;  // null: the warden's
  const rlimit* files = nullptr;    // limit of open files; null: the warden's
  int stdio[3] = {-1, -1, -1};      // > 3; become 0, 1, 2; all others are closed
};

struct StartFailure {
  warden_protocol::StartStage stage;
  int error;  // errno
};

struct StartingWorker {
  pid_t pid = -1;             // -1: not forked
  UniqueFd exec_result = {};  // non-blocking; see ReadStartResult
  int error = 0;              // errno when pid is -1
};

// Does not wait for exec, which may take long (a program on a slow file system); ReadStartResult reads its
// result. The worker leads its own session and process group (its pid is the id of both), has default
// dispositions and an empty mask for all signals, and gets SIGKILL when the calling thread ends. Before any
// step that may block, it closes all inherited descriptors, so that a worker that hangs holds none of the
// warden's, and takes the name of its program.
StartingWorker StartWorker(const WorkerCommand& command);

enum class StartState { kPending, kRunning, kFailed };

// The result of exec. kFailed sets `failure`; the process exits and must still be reaped. A worker killed
// before exec counts as kRunning.
StartState ReadStartResult(int exec_result, StartFailure& failure);

// Why a worker could not be started, with a remedy. `error` is the errno of `stage`. Reads the file system to
// distinguish causes that share an errno (a missing program, a missing interpreter).
//   Returns: kNotFound, kPermissionDenied, kInvalidArgument (the program or its arguments cannot run here),
//            kResourceExhausted (processes, memory, descriptors), kCancelled (everything is being killed),
//            kInternal otherwise.
absl::Status StartError(warden_protocol::StartStage stage, int error, absl::string_view program,
                        absl::string_view cwd);

}  // namespace ddprun
