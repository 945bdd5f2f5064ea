// Observes from outside whether the workers of two rounds are alive at the same time, on all simulated hosts together.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "base/time.h"

namespace ddprun {

// Samples /proc about every 5 ms in a thread. A worker is a process with DDPRUN_ROUND in its environment that this test process has
// started, directly or not. It counts as alive until its last thread has exited; a zombie does not count.
//   Threads: one caller. The thread starts no process.
class RoundWatch {
 public:
  RoundWatch();
  ~RoundWatch();
  RoundWatch(const RoundWatch&) = delete;
  RoundWatch& operator=(const RoundWatch&) = delete;

  // Ends the samples. Expects that workers of at least `rounds` different rounds were seen, and never two rounds at a time.
  void ExpectOneRoundAtATime(int rounds);
  // Waits until all processes that run now have been seen.
  void Await() const;

 private:
  struct Worker {
    int stat_fd = -1;  // of /proc/PID/stat: it refers to the process, not to a later one with the same pid
    int round = -1;
  };
  void Run();
  void Sample();
  // Adds the processes that were started since the last sample, and forgets those that have exited.
  void Discover();
  // Whether the environment of the process is the final one; it is empty during exec. Sets `round`, -1: it is no worker of this test.
  bool ReadRound(pid_t pid, int& round) const;

  const std::string mark_;
  // Of the thread until it is joined.
  std::map<pid_t, Worker> workers_;
  std::map<pid_t, TimePoint> others_;  // no workers, and when they were first seen
  std::set<int> rounds_;
  std::string violation_;             // the first one
  std::atomic<int64_t> samples_ = 0;  // complete ones
  Duration longest_gap_{};
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace ddprun
