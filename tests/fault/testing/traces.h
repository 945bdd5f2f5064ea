// What a job holds of the system, found by looking: its processes, listening ports, abstract sockets and
// shared memory; and what of it is still there later.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

// Names are for people; the numbers (of processes, of inodes) are what is looked for later.
struct Traces {
  std::map<pid_t, std::string> processes;         // name in the kernel
  std::map<ino_t, int> ports;                     // that they listen on (TCP)
  std::map<ino_t, std::string> abstract_sockets;  // unix sockets without a file
  std::map<ino_t, std::string> shared_memory;     // mapped or open: memfd and /dev/shm

  int Count(const std::string& name) const;   // processes of that name
  pid_t Find(const std::string& name) const;  // one of them, 0 if there is none
};

// What the processes have whose environment contains `mark` ("NAME=VALUE").
Traces LookAround(const std::string& mark);

// Waits until no process with `mark` is alive and nothing of `seen` is there. Returns what is, one line each:
// nothing is what a test wants.
//   What is still alive is killed, so that the next test does not find it too.
//   Also looked for are processes without the mark that descend from the caller, which must be their
//   subreaper (AdoptOrphans), other than `others` and what those started.
std::vector<std::string> LeftOf(const Traces& seen, const std::string& mark,
                                const std::vector<pid_t>& others = {}, Duration timeout = seconds(10));

// Until none of them is alive; false: `timeout` came first.
bool AwaitEnds(const std::vector<pid_t>& pids, Duration timeout = seconds(10));

// Makes this process the parent of all descendants that lose theirs.
void AdoptOrphans();

}  // namespace ddprun
