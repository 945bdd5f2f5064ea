// Starts one worker: fork, setup of the child, exec. Only for the warden: the calling process must be
// single-threaded.
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
  const rlimit* files = nullptr;    // limit on open files; null: the warden's
  int stdio[3] = {-1, -1, -1};      // each > 3; they become 0, 1, 2; all other descriptors are closed
};

struct StartFailure {
  warden_protocol::StartStage stage;
  int error;  // errno
};

struct StartingWorker {
  pid_t pid = -1;             // -1: not forked
  UniqueFd exec_result = {};  // non-blocking; see ReadStartResult
  int error = 0;              // errno if pid is -1
};

// Does not wait for exec, which may take long if the program is on a slow file system; ReadStartResult reads
// the result of exec. The worker leads its own session and process group (its pid is the id of both), has
// default signal dispositions and an empty signal mask, and gets SIGKILL when the calling thread ends. Before
// any step that may block, the worker takes the name of its program and closes all inherited descriptors, so
// that a worker that hangs holds none of the warden's.
StartingWorker StartWorker(const WorkerCommand& command);

enum class StartState { kPending, kRunning, kFailed };

// Returns the result of exec. With kFailed, `failure` is set; the process exits and must still be reaped. A
// worker that was killed before exec counts as kRunning.
StartState ReadStartResult(int exec_result, StartFailure& failure);

// Returns why a worker could not be started, with a remedy. `error` is the errno of `stage`. Checks the file
// system to distinguish causes that share an errno, such as a missing program and a missing interpreter.
//   Returns: kNotFound, kPermissionDenied, kInvalidArgument (the program or its arguments cannot run here),
//            kResourceExhausted (processes, memory, descriptors), kCancelled (everything is being killed),
//            kInternal otherwise.
absl::Status StartError(warden_protocol::StartStage stage, int error, absl::string_view program,
                        absl::string_view cwd);

}  // namespace ddprun
