#include "launcher/monitor/timer_table.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

const ExpiredTimers::Timer* ExpiredTimers::Decisive() const {
  const auto it = std::find_if(timers.begin(), timers.end(), [](const Timer& t) { return t.signo > 0; });
  return it == timers.end() ? nullptr : &*it;
}

absl::Status TimerTable::Set(pid_t pid, const std::string& scope, TimePoint deadline, int signo) {
  const Key key(pid, scope);
  if (!timers_.contains(key) && timers_.size() >= max_timers_) {
    return absl::ResourceExhaustedError(absl::StrCat("timer \"", absl::Utf8SafeCEscape(scope),
                                                     "\" of process ", pid, " is ignored: ", max_timers_,
                                                     " timers are already running"));
  }
  Release(pid, scope);
  timers_.emplace(key, Timer{deadline, signo});
  by_deadline_.emplace(deadline, key);
  return absl::OkStatus();
}

void TimerTable::Release(pid_t pid, const std::string& scope) {
  const auto it = timers_.find({pid, scope});
  if (it == timers_.end()) return;
  by_deadline_.erase({it->second.deadline, it->first});
  timers_.erase(it);
}

void TimerTable::Forget(pid_t pid) {
  for (auto it = timers_.lower_bound({pid, ""}); it != timers_.end() && it->first.first == pid;) {
    by_deadline_.erase({it->second.deadline, it->first});
    it = timers_.erase(it);
  }
}

std::vector<ExpiredTimers> TimerTable::Expire(TimePoint now) {
  std::vector<ExpiredTimers> expired;
  for (const auto& [deadline, key] : by_deadline_) {
    if (deadline > now) break;
    const pid_t pid = key.first;
    auto it = std::find_if(expired.begin(), expired.end(), [&](const auto& e) { return e.pid == pid; });
    if (it == expired.end()) it = expired.insert(expired.end(), {.pid = pid});
    it->timers.push_back({.scope = key.second, .deadline = deadline, .signo = timers_.at(key).signo});
  }
  for (const ExpiredTimers& e : expired) Forget(e.pid);
  return expired;
}

std::optional<TimePoint> TimerTable::NextDeadline() const {
  if (by_deadline_.empty()) return std::nullopt;
  return by_deadline_.begin()->first;
}

bool TimerTable::Has(pid_t pid) const {
  const auto it = timers_.lower_bound({pid, ""});
  return it != timers_.end() && it->first.first == pid;
}

}  // namespace ddprun
