// The running timers of processes and their deadlines. Pure: performs no I/O and reads no clock.
//
//   Set(pid, scope) ------> running ----- deadline reached -----> expired: Expire() returns the process and
//                            |    ^                               removes all of its timers
//              Release(), or |    | Set() again: new deadline and signal
//       Forget() the process v    |
//                           removed
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/time.h"

namespace ddprun {

// A process with expired timers.
struct ExpiredTimers {
  struct Timer {
    std::string scope;
    TimePoint deadline;
    int signo = 0;
    bool operator==(const Timer&) const = default;
  };
  pid_t pid = 0;
  std::vector<Timer> timers = {};  // the expired timers, ordered by deadline; not empty
  // Returns the earliest of the expired timers that have a signal; null if none has a signal.
  const Timer* Decisive() const;
  bool operator==(const ExpiredTimers&) const = default;
};

class TimerTable {
 public:
  explicit TimerTable(size_t max_timers = 4096) : max_timers_(max_timers) {}

  // Starts a timer. Replaces a running timer of the same process and scope.
  //   Errors: kResourceExhausted: `max_timers` timers are already running. The table is unchanged.
  absl::Status Set(pid_t pid, const std::string& scope, TimePoint deadline, int signo);
  // No-op if the timer is not running.
  void Release(pid_t pid, const std::string& scope);
  // Removes all timers of a process that has ended.
  void Forget(pid_t pid);

  // Returns the processes that have a timer whose deadline is not after `now`, ordered by earliest deadline.
  // Removes all timers of these processes, including timers that have not expired.
  std::vector<ExpiredTimers> Expire(TimePoint now);
  // Returns the earliest deadline, by which Expire() must be called; nullopt if no timer is running.
  std::optional<TimePoint> NextDeadline() const;

  bool Has(pid_t pid) const;
  size_t size() const { return timers_.size(); }

 private:
  using Key = std::pair<pid_t, std::string>;
  struct Timer {
    TimePoint deadline;
    int signo;
  };

  const size_t max_timers_;
  std::map<Key, Timer> timers_;
  std::set<std::pair<TimePoint, Key>> by_deadline_;  // the keys of timers_, ordered by deadline
};

}  // namespace ddprun
