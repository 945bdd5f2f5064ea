// Who descends from a process, read from /proc. Used by the warden, and by the agent when the warden is gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';  // as in /proc/PID/stat: R, S, D (uninterruptible), T (stopped), Z (zombie), ...
  std::string comm;  // name, at most 15 bytes
};

// Live and dead (zombie) descendants of `root`, without `root`, and without the processes in `except` and
// what descends from those. A process that forks meanwhile may be missed: look again until nothing new is
// there.
std::vector<ProcessEntry> Descendants(pid_t root, const std::vector<pid_t>& except = {});

// True if `root` is an ancestor of `pid`; false also for processes that are gone.
bool DescendsFrom(pid_t pid, pid_t root);

// Children that this process has now.
std::vector<pid_t> ChildrenOfThisProcess();

// Sends SIGKILL to every descendant. All are stopped first, those found by looking again included, so that
// what forks faster than one look is caught too; the number of looks is bounded.
//   Returns: those that were alive and got the signal. They may need a moment, and a second call, to be gone.
std::vector<ProcessEntry> StopAndKillDescendants(pid_t root, const std::vector<pid_t>& except = {});

// As ProcessEntry::state; '?' when it is gone.
char StateOfProcess(pid_t pid);

// Where in the kernel `pid` waits (/proc/PID/wchan); empty when that cannot be read.
std::string KernelWait(pid_t pid);

}  // namespace ddprun
