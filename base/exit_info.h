// How a worker ended, with its kind kept: an exit code, a signal, it never ran, or it does not end.
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

// It is counted as failed, and has not ended: no signal reaches it where it waits.
struct Stuck {
  std::string where;  // "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable"
  bool operator==(const Stuck&) const = default;
};

using ExitInfo = std::variant<Exited, Signaled, NeverStarted, Stuck>;

// `wait_status` is what waitpid() gave for a process that has ended.
ExitInfo ExitInfoFromWaitStatus(int wait_status);

bool Succeeded(const ExitInfo& exit);
bool EndedBySignal(const ExitInfo& exit, int signo);

// The one number of torchrun's report: the exit code, minus the signal's number, 1 for a worker that never
// ran or does not end.
int TorchExitCode(const ExitInfo& exit);

// "SIGKILL", "SIGRTMIN+3"; "signal 0" for a number that is none.
std::string SignalName(int signo);

// "exit code 3", "SIGSEGV (core dumped)", "never started: <why>", "stuck <where>".
std::string ToString(const ExitInfo& exit);

}  // namespace ddprun
