// Looks for workers in uninterruptible sleep (state D): they wait for a GPU, a network card or a file system
// that does not answer, and no signal ends them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/process/sleep_table.h"

namespace ddprun {

// Nobody tells when a process falls asleep, so it looks, four times in the limit and once a second at most;
// not at all while it watches nobody.
//   Threads: that of `io`.
class StuckWatch {
 public:
  // `where` in words: "in uninterruptible sleep (state D) for 12.0 s, waiting in nfs_wait_bit_killable".
  using Handler = std::function<void(pid_t pid, const std::string& where)>;

  // `limit` none: it watches nobody, whatever it is told. `on_stuck` is called from `io`, once for a process.
  StuckWatch(boost::asio::io_context& io, std::optional<Duration> limit, Handler on_stuck);

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
