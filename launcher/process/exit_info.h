// How a worker ended, with its kind kept: an exit code, a signal, or it never ran.
#pragma once

#include <string>
#include <variant>

#include "absl/status/status.h"

namespace ddprun {

struct Exited {
  int code = 0;  // 0..255
  bool operator==(const Exited&) const = default;
};

struct Signaled {
  int signo = 0;
  bool core_dumped = false;
  bool operator==(const Signaled&) const = default;
};

struct NeverStarted {
  absl::Status status;  // never OK; its message says what to do
  bool operator==(const NeverStarted&) const = default;
};

using ExitInfo = std::variant<Exited, Signaled, NeverStarted>;

// `wait_status` is what waitpid() gave for a process that has ended.
ExitInfo ExitInfoFromWaitStatus(int wait_status);

bool Succeeded(const ExitInfo& exit);

// The one number of torchrun's report: the exit code, minus the signal's number, 1 for a worker that never
// ran.
int TorchExitCode(const ExitInfo& exit);

// "SIGKILL", "SIGRTMIN+3"; "signal 0" for a number that is none.
std::string SignalName(int signo);

// "exit code 3", "SIGSEGV (core dumped)", "never started: <why>".
std::string ToString(const ExitInfo& exit);

}  // namespace ddprun
