// The watchdog: ends a process of a worker that has not released a timer in time, as torchrun's does.
//
// Workers use PyTorch's FileTimerClient, or anything that writes timer_request.h's lines into the FIFO.
// Unlike torchrun's newest versions this does not send the signal to the launcher itself, too: the launcher
// has to tell why the worker ended, and a restart that the job has left is worth having.
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

// A deadline is kept to the millisecond by the monotonic clock: the time left is taken when the request
// comes, so a step of the wall clock ends nobody.
//   Order:   handlers are called from `io`, never from inside a call.
//   Threads: that of `io`.
//   Owns:    the FIFO; it is gone when the destructor returns.
class Watchdog {
 public:
  struct Handlers {
    // One line for people.
    std::function<void(absl::string_view)> say;
    // A timer is over; right after that its process gets the signal, if it has one.
    std::function<void(const ExpiredTimers&)> expired = {};
  };

  // `path`: as TimerFifo::Create. `root`: only processes that descend from this one are ever watched or
  // signalled.
  //   Errors: as TimerFifo::Create.
  static absl::StatusOr<std::unique_ptr<Watchdog>> Open(boost::asio::io_context& io, const std::string& path,
                                                        pid_t root, Handlers handlers);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // To be told to the workers as TORCHELASTIC_TIMER_FILE.
  const std::string& path() const { return fifo_.path(); }
  // As TimerFifo::handle.
  int file_handle() const { return fifo_.handle(); }

  // The next workers begin: what was said of earlier ones is forgotten.
  void BeginRound();
  // `its watchdog timer "step" expired`; empty: none of this process in this round.
  std::string ExpiredTimerOf(pid_t pid) const;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  Watchdog(boost::asio::io_context& io, TimerFifo fifo, pid_t root, Handlers handlers);
  void Read();
  void ReadSome();
  void Handle(const TimerRequest& request);
  void Acquire(const TimerRequest& request);
  // Keeps the process in sight until it ends or has no timers.
  //   Errors: kNotFound: it is none of ours, or gone; others: the system lacks what that needs.
  absl::Status Watch(pid_t pid);
  void Unwatch(pid_t pid);
  void SetTimer();
  void Reap();
  void Complain(const std::string& text);

  boost::asio::io_context& io_;
  const pid_t root_;
  const Handlers handlers_;
  TimerFifo fifo_;
  Descriptor reader_;
  boost::asio::steady_timer timer_;
  TimerLines lines_;
  TimerTable table_;
  std::map<pid_t, Descriptor> watched_;   // pidfds of all that have timers
  std::map<pid_t, std::string> expired_;  // scopes, by process, of this round
  int complaints_ = 0;                    // in this round
  Alive alive_;
};

}  // namespace ddprun
