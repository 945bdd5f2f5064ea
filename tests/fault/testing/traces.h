// System resources of a job, found in /proc: processes, listening ports, abstract sockets and shared memory;
// and checks for resources that are left later.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

// Resources are identified by their numbers (pids, inodes); the names are for messages.
struct Traces {
  std::map<pid_t, std::string> processes;         // name in the kernel
  std::map<ino_t, int> ports;                     // listening TCP ports
  std::map<ino_t, std::string> abstract_sockets;  // unix sockets without a file
  std::map<ino_t, std::string> shared_memory;     // mapped or open: memfd and /dev/shm

  int Count(const std::string& name) const;   // processes of that name
  pid_t Find(const std::string& name) const;  // one of them, 0 if there is none
};

// The resources of processes whose environment contains `mark` ("NAME=VALUE").
Traces LookAround(const std::string& mark);

// Waits until no process with `mark` is alive and no resource of `seen` exists. Returns what is left, one
// line each; empty on success. Kills the processes that are left, so that later tests do not find them. Also
// checks for descendants of the caller without the mark, except `others` and their descendants.
//   REQUIRES: AdoptOrphans() was called.
std::vector<std::string> LeftOf(const Traces& seen, const std::string& mark,
                                const std::vector<pid_t>& others = {}, Duration timeout = seconds(10));

// Waits until none of `pids` is alive; false: timeout.
bool AwaitEnds(const std::vector<pid_t>& pids, Duration timeout = seconds(10));

// Makes this process the subreaper: the parent of its orphaned descendants.
void AdoptOrphans();

}  // namespace ddprun
