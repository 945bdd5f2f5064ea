#include "launcher/monitor/worker_monitor.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"

namespace ddprun {
namespace {

// Converts a time on the monotonic clock to seconds since 1970.
double WallClockOf(TimePoint when) {
  using std::chrono::duration;
  const duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const duration<double> since = std::chrono::steady_clock::now() - when;
  return (now - since).count();
}

}  // namespace

WorkerMonitor::WorkerMonitor(boost::asio::io_context& io, const LaunchConfig* config, const AgentLog* log,
                             Handlers handlers)
    : io_(io),
      config_(*config),
      log_(*log),
      handlers_(std::move(handlers)),
      stuck_(io, config->uninterruptible_timeout,
             [this](pid_t pid, const std::string& where) { handlers_.stuck(pid, where); }) {}

absl::Status WorkerMonitor::Open(WardenClient& processes) {
  if (!config_.watchdog_fifo) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      watchdog_, Watchdog::Open(io_, *config_.watchdog_fifo, processes.warden_pid(),
                                {.say = [this](absl::string_view text) { log_.Say(text); },
                                 .expired = [this](const ExpiredTimers& expired) { NoteExpired(expired); }}));
  processes.RemoveAtEnd(watchdog_->file_handle());
  return absl::OkStatus();
}

void WorkerMonitor::BeginRound(const std::vector<pid_t>& kept) {
  stuck_.Clear();
  for (const pid_t pid : kept) stuck_.Add(pid);
  if (watchdog_ == nullptr) return;
  watchdog_->BeginRound();
  handlers_.note({.what = "watchdog started"});
}

void WorkerMonitor::Gone(const std::vector<pid_t>& kept) {
  stuck_.Clear();
  for (const pid_t pid : kept) stuck_.Add(pid);
  if (watchdog_ != nullptr) handlers_.note({.what = "watchdog stopped"});
}

void WorkerMonitor::NoteExpired(const ExpiredTimers& expired) const {
  const auto note = [&](absl::string_view what, const ExpiredTimers::Timer& timer) {
    handlers_.note({.what = what,
                    .pid = expired.pid,
                    .scope = timer.scope,
                    .expires = WallClockOf(timer.deadline),
                    .signo = timer.signo});
  };
  const ExpiredTimers::Timer* const decisive = expired.Decisive();
  for (const ExpiredTimers::Timer& timer : expired.timers) {
    note("timer expired", timer);
    if (&timer == decisive) break;
  }
  if (decisive != nullptr) note("kill worker process", *decisive);
}

}  // namespace ddprun
