// Looks for workers in uninterruptible sleep (state D): they wait for a GPU, a network card or a file system
// that does not answer, and no signal ends them.
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

// Nobody tells when a process falls asleep, so it looks, four times in the limit and once a second at most;
// not at all while it watches nobody.
//   Threads: that of `io`.
class StuckProcessMonitor {
 public:
  // `where` in words: "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable".
  using Handler = std::function<void(pid_t pid, const std::string& where)>;

  // `limit` none: it watches nobody, whatever it is told. `on_stuck` is called from `io`, once for a process.
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
