// Finds the system resources of a job in /proc: processes, listening ports, abstract sockets and shared
// memory. Also finds those that are left after the job has ended.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

// Resources are identified by pid or inode; the names are for messages.
struct Traces {
  std::map<pid_t, std::string> processes;         // name in the kernel
  std::map<ino_t, int> ports;                     // listening TCP ports
  std::map<ino_t, std::string> abstract_sockets;  // unix sockets without a file
  std::map<ino_t, std::string> shared_memory;     // mapped or open: memfd and /dev/shm

  int Count(const std::string& name) const;   // number of processes with that name
  pid_t Find(const std::string& name) const;  // pid of one such process, 0 if there is none
};

// Returns the resources of the processes whose environment contains `mark` ("NAME=VALUE").
Traces TracesOf(const std::string& mark);

// Waits until no process with `mark` and no descendant of the caller is alive, except `others` and their
// descendants. Returns the processes that are left at the timeout and the resources in `seen` that still
// exist, one line per item; empty if nothing is left. Kills the processes that are left, so that later tests
// do not find them.
//   REQUIRES: AdoptOrphans() was called.
std::vector<std::string> LeftOf(const Traces& seen, const std::string& mark,
                                const std::vector<pid_t>& others = {}, Duration timeout = seconds(10));

// Waits until none of `pids` is alive. Returns false on timeout.
bool AwaitEnds(const std::vector<pid_t>& pids, Duration timeout = seconds(10));

// Makes this process the subreaper: the parent of its orphaned descendants.
void AdoptOrphans();

}  // namespace ddprun
