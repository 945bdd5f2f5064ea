// The watchdog: signals a worker's process that has not released a timer by its deadline, as in torchrun.
//
// Workers use PyTorch's FileTimerClient, or any client that writes the lines of timer_requests.h into the
// FIFO. Unlike recent versions of torchrun, the watchdog does not send the signal to the launcher as well:
// the launcher reports why the worker ended, and restarts the job if it has restarts left.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/monitor/timer_fifo.h"
#include "launcher/monitor/timer_requests.h"
#include "launcher/monitor/timer_table.h"

namespace ddprun {

// Deadlines are kept to the millisecond. They are converted to the monotonic clock when the request is read,
// so later steps of the wall clock do not expire timers.
//   Order:   handlers run on `io`, never inside a call.
//   Threads: the thread that runs `io`.
//   Owns:    the FIFO; the destructor removes it.
class Watchdog {
 public:
  struct Handlers {
    // Logs one line.
    std::function<void(absl::string_view)> say;
    // Timers of a process have expired. The signal, if any, is sent right after this returns.
    std::function<void(const ExpiredTimers&)> expired = {};
  };

  // `path`: see TimerFifo::Create. `root`: only its descendants are watched and signalled.
  //   Errors: see TimerFifo::Create.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Open(boost::asio::io_context& io, const std::string& path,
                                                        pid_t root, Handlers handlers);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // For TORCHELASTIC_TIMER_FILE.
  const std::string& path() const { return fifo_.path(); }
  // See TimerFifo::handle.
  int file_handle() const { return fifo_.handle(); }

  // Resets ExpiredTimerOf and the limit of logged errors.
  void BeginRound();
  // `its watchdog timer "step" expired`; empty: this process was not signalled in this round.
  std::string ExpiredTimerOf(pid_t pid) const;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  Watchdog(boost::asio::io_context& io, TimerFifo fifo, pid_t root, Handlers handlers);
  void Read();
  void ReadSome();
  void Handle(const TimerRequest& request);
  void Acquire(const TimerRequest& request);
  // Watches the process until it ends or has no timers.
  //   Errors: kNotFound: not a descendant of root_, or ended; others: pidfds or /proc are not available.
  absl::Status Watch(pid_t pid);
  void Unwatch(pid_t pid);
  void SetTimer();
  void Reap();
  // At most kMaxLoggedErrors per round.
  void LogError(const std::string& text);

  boost::asio::io_context& io_;
  const pid_t root_;
  const Handlers handlers_;
  TimerFifo fifo_;
  Descriptor reader_;
  boost::asio::steady_timer timer_;
  TimerLines lines_;
  TimerTable table_;
  std::map<pid_t, Descriptor> watched_;   // pidfds of the processes with timers
  std::map<pid_t, std::string> expired_;  // decisive scopes of this round, by process
  int errors_ = 0;                        // in this round
  Alive alive_;
};

}  // namespace ddprun
