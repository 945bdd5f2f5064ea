// Finds and signals the descendants of this process. The warden uses these functions to kill the processes of
// the workers. The agent does the same if the warden is lost.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

struct ProcessEntry {
  pid_t pid = 0;  // 0 if a child exists but its pid could not be found
  pid_t parent = 0;
  // The state as in /proc/PID/stat: R, S, D (uninterruptible sleep), T (stopped), Z (zombie), ...; '?' if the
  // process is alive but not visible in /proc. If the main thread has ended but other threads have not, this
  // is the state of one of the other threads, preferably one in state D. A process in state Z therefore has
  // no live threads.
  char state = '?';
  pid_t thread = 0;  // the thread whose state is in `state`
  // Start time in clock ticks since boot; 0 if unknown. Distinguishes successive processes with the same pid.
  uint64_t start_time = 0;
  Duration cpu = {};                 // processor time used since the start; of a process by all its threads
  Duration ended_children_cpu = {};  // processor time of its children that have ended, and of theirs
  std::string comm = {};             // process name, at most 15 bytes; empty if unknown

  bool dead() const { return state == 'Z' || state == 'X'; }
};

// Returns true if /proc is readable and shows this process's pid namespace. If not, the functions below do
// not use /proc.
bool ProcShowsThisProcess();

// Returns the process with this pid; nullopt if /proc does not show it.
std::optional<ProcessEntry> ReadProcess(pid_t pid);

// Returns the live and zombie descendants of this process, except the processes in `except` and their
// descendants. The result may lack processes that are forked during the call. A caller that needs all
// processes must repeat the call until it finds no new process.
//   If this process has children but /proc shows none, the call instead checks with waitid() which pids
//   belong to children. Each call checks the pids near our own and the next slice of all other pids, which
//   takes a fraction of a second. It finds only children, not their descendants. Repeated calls are
//   nevertheless sufficient to kill all descendants: this process is a subreaper, so the children of a killed
//   child become children of this process. If the call finds no child, it returns one entry with pid 0,
//   unless a process in `except` is a child.
std::vector<ProcessEntry> Descendants(const std::vector<pid_t>& except = {});

// Returns all processes that /proc shows; an empty list if it shows another pid namespace.
std::vector<ProcessEntry> AllProcesses();
// Returns at most `max` of the threads of a process, the main thread first; `pid` and `thread` are that of the thread. Empty if the
// process has ended, or if /proc does not show it.
std::vector<ProcessEntry> Threads(pid_t pid, size_t max);
// Returns the process that traces `pid`, such as a debugger; 0 if there is none.
pid_t TracerOf(pid_t pid);

// Returns true if the process `root` is an ancestor of the process `pid`. Returns false if `pid` has ended or
// if /proc is not usable.
bool DescendsFrom(pid_t pid, pid_t root);

std::vector<pid_t> ChildrenOfThisProcess();

// Sends `signo` to the process that `process` describes, and never to a later process with the same pid. On
// kernels without pidfds (before Linux 5.3), a race window of microseconds remains.
//   Returns: false if the process has ended or if the caller is not permitted to signal it.
bool SignalProcess(const ProcessEntry& process, int signo);

// Sends SIGKILL to every descendant, except the processes in `except` and their descendants. First sends
// SIGSTOP to each descendant and repeats the search until it finds no new process, because processes may fork
// during a search. The number of searches is bounded.
//   Returns: the descendants that the last search found alive. They may still be alive when the call returns.
//            Another call may find descendants that the last search missed.
std::vector<ProcessEntry> StopAndKillDescendants(const std::vector<pid_t>& except = {});

// Returns the kernel function in which `thread` waits, from /proc/TID/wchan; empty if the function is unknown
// or the thread does not wait.
std::string KernelWait(pid_t thread);

}  // namespace ddprun
