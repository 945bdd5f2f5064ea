// Detects workers in uninterruptible sleep (state D). Such a worker is blocked on a GPU, a network card or a
// file system that does not respond, and no signal terminates it.
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

// Tracks how long processes stay in state D. Pure.
class SleepTable {
 public:
  struct Sleeper {
    pid_t pid = 0;
    Duration slept{};  // time since the first of the consecutive checks that found it in state D
    bool operator==(const Sleeper&) const = default;
  };

  // REQUIRES: limit > 0.
  explicit SleepTable(Duration limit) : limit_(limit) {}

  // `states`: the states of all watched processes, as in /proc/PID/stat. Other processes are forgotten.
  //   Returns: processes that have been asleep for at least the limit, each once per sleep.
  std::vector<Sleeper> Look(const std::map<pid_t, char>& states, TimePoint now);
  // Time between checks: a quarter of the limit, but at least 10 ms and at most 1 s.
  Duration Interval() const;

 private:
  struct Sleep {
    TimePoint since;
    bool reported = false;
  };

  const Duration limit_;
  std::map<pid_t, Sleep> sleeps_;
};

// Polls /proc, since no event reports uninterruptible sleep. Idle while no process is watched.
//   Threads: the thread that runs `io`.
class StuckProcessMonitor {
 public:
  // `where`: for example "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable".
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
