// Starts a worker process and explains why a start failed. Only the warden may call StartWorker, because the
// calling process must have only one thread.
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/process/warden_protocol.h"
#include "os/descriptor.h"

namespace ddprun {

struct WorkerCommand {
  const char* cwd = "";             // working directory; the warden's if empty
  const char* file = nullptr;       // path of the program, as for execve
  char* const* argv = nullptr;      // null-terminated
  char* const* env = nullptr;       // complete environment; null-terminated
  const cpu_set_t* cpus = nullptr;  // processors that the worker may use; the warden's if null
  const rlimit* files = nullptr;    // limit on open files; the warden's if null
  uint64_t ignored = 0;             // signals that the worker ignores from the start; bit n: signal n
  // The descriptors for stdin, stdout and stderr; each must be > 3. In the worker they become descriptors 0,
  // 1 and 2, and all other descriptors are closed.
  int stdio[3] = {-1, -1, -1};
};

struct StartFailure {
  warden_protocol::StartStage stage;
  int error;  // errno
};

struct StartingWorker {
  pid_t pid = -1;             // -1 if no process was forked
  UniqueFd exec_result = {};  // for ReadStartResult; non-blocking
  int error = 0;              // errno if pid is -1
};

// Forks a worker, which then executes the program. Does not wait for exec, which may take a long time if the
// program is on a slow file system; ReadStartResult returns the result of exec. The worker leads its own
// session and process group (its pid is the id of both), has default signal dispositions, except for the signals
// to ignore, and an empty signal mask, and receives SIGKILL when the calling thread ends. Before any step that may block, the worker sets
// its process name to the program's file name and closes all inherited descriptors, so that a worker that
// hangs does not hold any of the warden's descriptors open.
StartingWorker StartWorker(const WorkerCommand& command);

enum class StartState { kPending, kRunning, kFailed };

// Returns the state of a start. `exec_result` is the descriptor from StartWorker. If the state is kFailed,
// sets `failure`; the worker process then exits and must still be reaped. A worker that is killed before exec
// counts as kRunning.
StartState ReadStartResult(int exec_result, StartFailure& failure);

// Returns an error that describes why a worker could not be started. For common causes, the message also
// names a remedy. `error` is the errno of the failed `stage`. Checks the file system to distinguish causes
// that share an errno, such as a missing program and a missing interpreter.
//   Returns: kNotFound, kPermissionDenied or kInvalidArgument: the program, its arguments, its working
//            directory or its processors cannot be used;
//            kResourceExhausted: there are not enough processes, memory or descriptors;
//            kCancelled: all workers are being killed, or this node has lost its lease;
//            kInternal: any other cause.
absl::Status StartError(warden_protocol::StartStage stage, int error, absl::string_view program,
                        absl::string_view cwd);

}  // namespace ddprun
