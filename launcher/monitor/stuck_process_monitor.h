// Detects workers that stay in uninterruptible sleep (state D). Such a worker is blocked on a GPU, a network
// card or a file system that does not respond, and no signal terminates it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"

namespace ddprun {

// Tracks how long processes stay in state D. Pure: performs no I/O and reads no clock.
class SleepTable {
 public:
  struct Sleeper {
    pid_t pid = 0;
    Duration slept{};  // time since the first of the consecutive checks that found the process in state D
    bool operator==(const Sleeper&) const = default;
  };

  // REQUIRES: limit > 0.
  explicit SleepTable(Duration limit) : limit_(limit) {}

  // Records the states of all watched processes, as in /proc/PID/stat. Processes that are not in `states` are
  // no longer tracked.
  //   Returns: processes that have been in state D for at least the limit. A process is returned only once
  //            per sleep.
  std::vector<Sleeper> Look(const std::map<pid_t, char>& states, TimePoint now);
  // Returns the time between checks: a quarter of the limit, but at least 10 ms and at most 1 s.
  Duration Interval() const;

 private:
  struct Sleep {
    TimePoint since;
    bool reported = false;
  };

  const Duration limit_;
  std::map<pid_t, Sleep> sleeps_;
};

// Polls /proc, because the kernel has no event for uninterruptible sleep. Idle while no process is watched.
//   Threads: the thread that runs `io`.
class StuckProcessMonitor {
 public:
  // `where` describes the sleep, for example:
  //   in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable
  using Handler = std::function<void(pid_t pid, const std::string& where)>;

  // If `limit` is nullopt, Add has no effect. `on_stuck` runs on `io`, once per sleep of a process.
  StuckProcessMonitor(boost::asio::io_context& io, std::optional<Duration> limit, Handler on_stuck);

  void Add(pid_t pid);
  void Remove(pid_t pid) { pids_.erase(pid); }
  void Clear() { pids_.clear(); }

 private:
  void Look();
  void LookLater();

  const Handler on_stuck_;
  boost::asio::steady_timer timer_;
  std::optional<SleepTable> table_;
  std::set<pid_t> pids_;
  bool looking_ = false;
  Alive alive_;
};

}  // namespace ddprun
