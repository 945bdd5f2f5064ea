// Finds and signals descendants of this process. Used by the warden, and by the agent if the warden is lost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct ProcessEntry {
  pid_t pid = 0;  // 0: a child exists whose pid could not be found
  pid_t parent = 0;
  // As in /proc/PID/stat: R, S, D (uninterruptible), T (stopped), Z (zombie), ...; '?': not visible in /proc.
  // If the main thread is a zombie while others run, this is the state of one of the others, preferably one
  // in state D. So a process in state Z has no threads left.
  char state = '?';
  pid_t thread = 0;         // the thread in that state
  uint64_t start_time = 0;  // in clock ticks since boot; distinguishes processes that reuse a pid; 0: unknown
  std::string comm = {};    // name, at most 15 bytes

  bool dead() const { return state == 'Z' || state == 'X'; }
};

// True if /proc is readable and shows this process's pid namespace. If not, the functions below find nothing
// in /proc.
bool ProcShowsThisProcess();

// Returns nullopt if /proc does not show `pid`.
std::optional<ProcessEntry> ReadProcess(pid_t pid);

// Live and dead (zombie) descendants of this process, except the processes in `except` and their descendants.
// May miss processes that are forked during the call: repeat the call until it finds nothing new.
//   If this process has children but /proc shows none, each call tries wait() on the pids near our own and on
//   the next slice of all other pids, which takes a fraction of a second. This finds only children. That is
//   enough to kill all descendants, since this process is a subreaper: orphans become its children. A call
//   that finds no child returns one entry with pid 0, unless a process in `except` is a child.
std::vector<ProcessEntry> Descendants(const std::vector<pid_t>& except = {});

// True if `root` is an ancestor of `pid`; false if `pid` has ended.
bool DescendsFrom(pid_t pid, pid_t root);

std::vector<pid_t> ChildrenOfThisProcess();

// Signals exactly the process that was read, never a later one with the same pid. Without pidfds (before
// Linux 5.3) there is a race window of microseconds.
//   Returns: false if the process has ended or this process is not permitted to signal it.
bool SignalProcess(const ProcessEntry& process, int signo);

// Sends SIGKILL to every descendant. Before that, stops them, and repeats the search until it finds no new
// ones, to catch processes that fork faster than one search; the number of searches is bounded.
//   Returns: the descendants that were alive. They may need a moment, or another call, to end.
std::vector<ProcessEntry> StopAndKillDescendants(const std::vector<pid_t>& except = {});

// The kernel function in which a thread waits (/proc/TID/wchan); empty: unknown.
std::string KernelWait(pid_t thread);

}  // namespace ddprun
