// Which processes have been in uninterruptible sleep for too long. Pure.
#pragma once

#include <sys/types.h>

#include <map>
#include <vector>

#include "base/time.h"

namespace ddprun {

class SleepTable {
 public:
  struct Sleeper {
    pid_t pid = 0;
    Duration slept{};  // at least so long, without a look at which it was awake
    bool operator==(const Sleeper&) const = default;
  };

  // `limit` > 0.
  explicit SleepTable(Duration limit) : limit_(limit) {}

  // `states`: of all that are watched, as in /proc/PID/stat; who is not in it is forgotten.
  //   Returns: those that have slept for the limit or longer, each once.
  std::vector<Sleeper> Look(const std::map<pid_t, char>& states, TimePoint now);
  // How often to look: often enough for the limit, and never more than is cheap.
  Duration Interval() const;

 private:
  struct Sleep {
    TimePoint since;
    bool told = false;
  };

  const Duration limit_;
  std::map<pid_t, Sleep> sleeps_;
};

}  // namespace ddprun
