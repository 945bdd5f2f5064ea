// Like torchrun's watchdog, signals a worker, or a process that a worker started, if the process does not
// release a timer by the timer's deadline.
//
// Workers use PyTorch's FileTimerClient, or any client that writes the lines described in timer_requests.h to
// the FIFO. Recent versions of torchrun also send the signal to the launcher. This watchdog does not: the
// launcher continues, reports why the worker ended, and starts a new round if restarts are left.
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

// Deadlines are accurate to the millisecond. They are converted to the monotonic clock when the request is
// read, so that later changes of the wall clock do not affect them.
//   Order:   handlers run on `io`, never during a call to this object.
//   Threads: the thread that runs `io`.
//   Owns:    the FIFO; the destructor removes it.
class Watchdog {
 public:
  struct Handlers {
    // Logs one line.
    std::function<void(absl::string_view)> say;
    // Called when timers of a process have expired. The signal, if any, is sent after this call returns.
    std::function<void(const ExpiredTimers&)> expired = {};
  };

  // `path`: see TimerFifo::Create. Only descendants of `root` are watched and signalled.
  //   Errors: see TimerFifo::Create.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Open(boost::asio::io_context& io, const std::string& path,
                                                        pid_t root, Handlers handlers);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The value of TORCHELASTIC_TIMER_FILE.
  const std::string& path() const { return fifo_.path(); }
  // See TimerFifo::handle.
  int file_handle() const { return fifo_.handle(); }

  // Clears the results of ExpiredTimerOf, and resets the number of errors to 0.
  void BeginRound();
  // Returns a clause such as `its watchdog timer "step" expired`; empty if the process was not signalled in
  // this round.
  std::string ExpiredTimerOf(pid_t pid) const;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  Watchdog(boost::asio::io_context& io, TimerFifo fifo, pid_t root, Handlers handlers);
  void Read();
  void ReadSome();
  void Handle(const TimerRequest& request);
  void Acquire(const TimerRequest& request);
  // Watches the process until it ends or has no timers.
  //   Errors: kNotFound: the process has ended or is not a descendant of root_;
  //           other codes: pidfds are not available, or /proc cannot be read.
  absl::Status Watch(pid_t pid);
  void Unwatch(pid_t pid);
  void SetTimer();
  void Reap();
  // Logs at most kMaxLoggedErrors errors per round.
  void LogError(const std::string& text);

  boost::asio::io_context& io_;
  const pid_t root_;
  const Handlers handlers_;
  TimerFifo fifo_;
  Descriptor reader_;
  boost::asio::steady_timer timer_;
  TimerLines lines_;
  TimerTable table_;
  std::map<pid_t, Descriptor> watched_;  // pidfds of the processes with timers
  // For each process that was signalled in this round, the quoted scope of the decisive timer.
  std::map<pid_t, std::string> expired_;
  int errors_ = 0;  // number of errors in this round
  Alive alive_;
};

}  // namespace ddprun
