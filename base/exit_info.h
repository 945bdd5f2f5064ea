// The outcome of a worker: it exited with a code, was terminated by a signal, never started, is stuck, or its round stood still.
#pragma once

#include <optional>
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
  absl::Status status;  // not OK; the message includes the remedy
  bool operator==(const NeverStarted&) const = default;
};

// The worker has not ended, but counts as failed because it is in a sleep that signals do not interrupt.
struct Stuck {
  // For example "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable".
  std::string where;
  bool operator==(const Stuck&) const = default;
};

// The worker has not ended, but its round has stood still for so long that it counts as failed.
struct Hung {
  std::string
      finding;  // one line: which ranks are behind, and where the others wait; empty if nothing is known
  bool behind = false;  // whether this worker is behind; if not, nothing separates a worker from the others
  bool operator==(const Hung&) const = default;
};

using ExitInfo = std::variant<Exited, Signaled, NeverStarted, Stuck, Hung>;

// `wait_status` is the status that waitpid() reports for a process that has ended.
ExitInfo ExitInfoFromWaitStatus(int wait_status);

bool Succeeded(const ExitInfo& exit);
bool EndedBySignal(const ExitInfo& exit, int signo);
// The signal that ended the worker or, if the worker is a shell, its program: a shell then exits with 128 plus the number of
// the signal. nullopt: the exit shows no signal.
std::optional<int> SignalBehind(const ExitInfo& exit);

// Returns the exit code that torchrun reports: the worker's exit code, the negated number of the signal that
// ended the worker, or 1 if the worker has not started or not ended.
int TorchExitCode(const ExitInfo& exit);

// Returns the name of the signal, such as "SIGKILL" or "SIGRTMIN+3". If the number has no name, returns text
// such as "signal 0".
std::string SignalName(int signo);

// Returns, for example, "exit code 3", "SIGSEGV (core dumped)", "never started: <why>", "stuck <where>" or "hung: <finding>".
std::string ToString(const ExitInfo& exit);

}  // namespace ddprun
