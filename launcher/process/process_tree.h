// Who descends from this process, read from /proc. Used by the warden, and by the agent when the warden is
// gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct ProcessEntry {
  pid_t pid = 0;  // 0: a child that is there, but whose pid could not be found
  pid_t parent = 0;
  // As in /proc/PID/stat: R, S, D (uninterruptible), T (stopped), Z (zombie), ...; '?' where /proc does not
  // show it. The main thread of a process may be a zombie while others run: then it is the state of one of
  // those, of one in D before all others. So a process in state Z has no thread left.
  char state = '?';
  pid_t thread = 0;         // whose state that is
  uint64_t start_time = 0;  // in clock ticks since boot; tells processes apart that had one pid; 0: not known
  std::string comm = {};    // name, at most 15 bytes

  bool dead() const { return state == 'Z' || state == 'X'; }
};

// True when /proc can be read and is that of our pid namespace. Otherwise the functions below find nothing
// there.
bool ProcShowsThisProcess();

// What /proc shows of `pid`; none when it is gone.
std::optional<ProcessEntry> ReadProcess(pid_t pid);

// Live and dead (zombie) descendants of this process, without the processes in `except` and what descends
// from those. A process that forks meanwhile may be missed: look again until nothing new is there.
//   Where /proc shows no child although there are some, they are looked for by wait(): among the pids near
//   our own, and with each call in another slice of all pids (a fraction of a second). Then only children are
//   found, which suffices for killing all, since what loses its parent becomes a child of this process (a
//   subreaper). One entry with pid 0 stands for those that this call did not find.
std::vector<ProcessEntry> Descendants(const std::vector<pid_t>& except = {});

// True if `root` is an ancestor of `pid`; false also for processes that are gone.
bool DescendsFrom(pid_t pid, pid_t root);

// Children that this process has now.
std::vector<pid_t> ChildrenOfThisProcess();

// Sends a signal to the process that was seen, never to a later one with its pid (without pidfds, before
// Linux 5.3, one may slip into a window of microseconds).
//   Returns: false when that process is gone, or may not be signalled.
bool SignalProcess(const ProcessEntry& process, int signo);

// Sends SIGKILL to every descendant. All are stopped first, those found by looking again included, so that
// what forks faster than one look is caught too; the number of looks is bounded.
//   Returns: those that were alive and got the signal. They may need a moment, and a second call, to be gone.
std::vector<ProcessEntry> StopAndKillDescendants(const std::vector<pid_t>& except = {});

// Where in the kernel a thread waits (/proc/TID/wchan); empty when that cannot be read.
std::string KernelWait(pid_t thread);

}  // namespace ddprun
