// Which timers of which processes run, and when they are over. Pure.
//
//   set (pid, scope) -----> running ----- its time comes -----> expired: the process is to be ended, and all
//                            |    ^                             its timers go
//              release, or   |    | set again: the new time and signal hold
//      its process has ended v    |
//                           gone -+
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

// One process whose time is over.
struct ExpiredTimers {
  struct Timer {
    std::string scope;
    TimePoint deadline;
    int signo = 0;
    bool operator==(const Timer&) const = default;
  };
  pid_t pid = 0;
  std::vector<Timer> timers = {};  // the earliest first; not empty
  // Of the earliest that has one; none: it is only to be said.
  const Timer* Decisive() const;
  bool operator==(const ExpiredTimers&) const = default;
};

class TimerTable {
 public:
  explicit TimerTable(size_t max_timers = 4096) : max_timers_(max_timers) {}

  // A timer of that name and process is replaced.
  //   Errors: kResourceExhausted: so many timers run already; nothing is changed.
  absl::Status Set(pid_t pid, const std::string& scope, TimePoint deadline, int signo);
  // One that does not run is no error.
  void Release(pid_t pid, const std::string& scope);
  // The process has ended.
  void Forget(pid_t pid);

  // Removes and returns all processes with a timer whose deadline is not after `now`, the earliest first.
  // Their other timers go with them.
  std::vector<ExpiredTimers> Expire(TimePoint now);
  // Expire() at the latest then; none: no timer runs.
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
  std::set<std::pair<TimePoint, Key>> by_deadline_;  // the same
};

}  // namespace ddprun
