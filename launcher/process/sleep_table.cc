#include "launcher/process/sleep_table.h"

#include <algorithm>

namespace ddprun {

std::vector<SleepTable::Sleeper> SleepTable::Look(const std::map<pid_t, char>& states, TimePoint now) {
  std::erase_if(sleeps_, [&](const auto& s) {
    const auto it = states.find(s.first);
    return it == states.end() || it->second != 'D';
  });
  std::vector<Sleeper> too_long;
  for (const auto& [pid, state] : states) {
    if (state != 'D') continue;
    Sleep& sleep = sleeps_.try_emplace(pid, Sleep{.since = now}).first->second;
    if (sleep.told || now - sleep.since < limit_) continue;
    sleep.told = true;
    too_long.push_back({.pid = pid, .slept = now - sleep.since});
  }
  return too_long;
}

Duration SleepTable::Interval() const {
  return std::clamp<Duration>(limit_ / 4, milliseconds(10), seconds(1));
}

}  // namespace ddprun
