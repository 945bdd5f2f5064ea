// How a worker ended: with an exit code or by a signal. Also covers a worker that never started, and one that
// does not end.
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
  absl::Status status;  // never OK; the message states the remedy
  bool operator==(const NeverStarted&) const = default;
};

// Counted as failed although the process has not ended: signals do not interrupt its sleep.
struct Stuck {
  std::string where;  // "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable"
  bool operator==(const Stuck&) const = default;
};

using ExitInfo = std::variant<Exited, Signaled, NeverStarted, Stuck>;

// `wait_status`: from waitpid(), for a process that has ended.
ExitInfo ExitInfoFromWaitStatus(int wait_status);

bool Succeeded(const ExitInfo& exit);
bool EndedBySignal(const ExitInfo& exit, int signo);

// The exit code as torchrun reports it: the exit code, the negated signal number, or 1 for a worker that
// never started or does not end.
int TorchExitCode(const ExitInfo& exit);

// "SIGKILL", "SIGRTMIN+3"; "signal 0" for a number that is not a signal.
std::string SignalName(int signo);

// "exit code 3", "SIGSEGV (core dumped)", "never started: <why>", "stuck <where>".
std::string ToString(const ExitInfo& exit);

}  // namespace ddprun
