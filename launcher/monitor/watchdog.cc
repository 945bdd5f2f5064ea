#include "launcher/monitor/watchdog.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_info.h"
#include "launcher/process/process_tree.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

// Limits how long reading blocks other handlers on `io`.
constexpr int kReadsPerTurn = 16;
// Limits the log if a broken program keeps writing invalid requests.
constexpr int kMaxLoggedErrors = 20;
// Deadlines are clamped to this distance from now, so that no clock value overflows.
constexpr double kLongestSeconds = 10 * 365.25 * 86400;

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Converts a wall-clock time, in seconds since 1970, to the monotonic clock.
TimePoint DeadlineOf(double expires) {
  using std::chrono::duration;
  const double wall = duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double left = std::clamp(expires - wall, -kLongestSeconds, kLongestSeconds);
  return Now() + std::chrono::duration_cast<Duration>(duration<double>(left));
}

std::string Quoted(const std::string& scope) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(scope), "\"");
}

std::string Scopes(const ExpiredTimers& expired) {
  return absl::StrJoin(expired.timers, ", ", [](std::string* out, const ExpiredTimers::Timer& t) {
    absl::StrAppend(out, Quoted(t.scope));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Open(boost::asio::io_context& io, const std::string& path,
                                                         pid_t root, Handlers handlers) {
  absl::StatusOr<TimerFifo> fifo = TimerFifo::Create(path);
  if (!fifo.ok()) return fifo.status();
  return std::unique_ptr<Watchdog>(new Watchdog(io, *std::move(fifo), root, std::move(handlers)));
}

Watchdog::Watchdog(boost::asio::io_context& io, TimerFifo fifo, pid_t root, Handlers handlers)
    : io_(io),
      root_(root),
      handlers_(std::move(handlers)),
      fifo_(std::move(fifo)),
      reader_(io, fifo_.TakeReader().Release()),
      timer_(io) {
  Read();
}

Watchdog::~Watchdog() { alive_.End(); }

void Watchdog::BeginRound() {
  expired_.clear();
  errors_ = 0;
}

std::string Watchdog::ExpiredTimerOf(pid_t pid) const {
  const auto it = expired_.find(pid);
  return it == expired_.end() ? "" : absl::StrCat("its watchdog timer ", it->second, " expired");
}

void Watchdog::Read() {
  reader_.async_wait(Descriptor::wait_read, alive_.Guard([this](const boost::system::error_code& error) {
    if (error) return;
    ReadSome();
    Read();
  }));
}

void Watchdog::ReadSome() {
  std::array<char, 16 << 10> buffer;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const ssize_t n = read(reader_.native_handle(), buffer.data(), buffer.size());
    if (n <= 0) break;
    lines_.Feed({buffer.data(), static_cast<size_t>(n)},
                {.request = [this](const TimerRequest& request) { Handle(request); },
                 .error =
                     [this](const absl::Status& why) {
                       LogError(absl::StrCat("invalid timer request: ", std::string(why.message())));
                     }});
  }
  SetTimer();
}

void Watchdog::Handle(const TimerRequest& request) {
  if (!request.releases()) return Acquire(request);
  table_.Release(request.pid, request.scope);
  Unwatch(request.pid);
}

void Watchdog::Acquire(const TimerRequest& request) {
  if (const absl::Status watched = Watch(request.pid); !watched.ok()) {
    return LogError(
        absl::StrCat("timer ", Quoted(request.scope), " is ignored: ", std::string(watched.message())));
  }
  const absl::Status set = table_.Set(request.pid, request.scope, DeadlineOf(request.expires), request.signo);
  if (!set.ok()) LogError(std::string(set.message()));
  Unwatch(request.pid);
}

absl::Status Watchdog::Watch(pid_t pid) {
  if (watched_.contains(pid)) return absl::OkStatus();
  // Open the pidfd before the ancestry check. The signal is sent through the pidfd, so it never reaches a
  // later process with the same PID.
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd && (errno == ENOSYS || errno == EPERM)) {
    return absl::ErrnoToStatus(
        errno, "pidfds are not available (they need Linux 5.3, and a container may deny them): pidfd_open");
  }
  if (!ProcShowsThisProcess())
    return absl::UnavailableError("cannot read /proc, which shows whether the process belongs to this job");
  if (!pidfd || !DescendsFrom(pid, root_)) {
    return absl::NotFoundError(absl::StrCat(
        "process ", pid, " is not a worker of this job or a descendant of a worker, or it has ended"));
  }
  Descriptor& descriptor = watched_.emplace(pid, Descriptor(io_, pidfd.Release())).first->second;
  descriptor.async_wait(Descriptor::wait_read,
                        alive_.Guard([this, pid](const boost::system::error_code& error) {
                          if (error) return;  // the process is no longer watched
                          table_.Forget(pid);
                          Unwatch(pid);
                          SetTimer();
                        }));
  return absl::OkStatus();
}

void Watchdog::Unwatch(pid_t pid) {
  if (!table_.Has(pid)) watched_.erase(pid);
}

void Watchdog::SetTimer() {
  timer_.cancel();
  const std::optional<TimePoint> next = table_.NextDeadline();
  if (!next) return;
  timer_.expires_at(*next);
  timer_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (error) return;
    // A release that was written in time may still be unread.
    ReadSome();
    Reap();
  }));
}

void Watchdog::Reap() {
  for (const ExpiredTimers& expired : table_.Expire(Now())) {
    const auto it = watched_.find(expired.pid);
    if (it == watched_.end()) continue;
    const ExpiredTimers::Timer* const decisive = expired.Decisive();
    const std::string what =
        absl::StrCat("the watchdog timer ", Scopes(expired), " of process ", expired.pid, " has expired: ");
    if (handlers_.expired) handlers_.expired(expired);
    if (decisive == nullptr) {
      handlers_.say(absl::StrCat(what, "it requests no signal, so the process continues"));
    } else {
      expired_[expired.pid] = Quoted(decisive->scope);
      const bool sent =
          syscall(SYS_pidfd_send_signal, it->second.native_handle(), decisive->signo, nullptr, 0) == 0;
      // ESRCH: the process has just ended.
      if (!sent && errno != ESRCH) {
        handlers_.say(
            absl::StrCat(what, "cannot send it ", SignalName(decisive->signo), ": ", std::strerror(errno)));
      } else {
        handlers_.say(absl::StrCat(what, "sending it ", SignalName(decisive->signo)));
      }
    }
    watched_.erase(it);
  }
  SetTimer();
}

void Watchdog::LogError(const std::string& text) {
  if (errors_ == kMaxLoggedErrors) handlers_.say("watchdog: further errors in this round are not shown");
  if (errors_++ < kMaxLoggedErrors) handlers_.say(absl::StrCat("watchdog: ", text));
}

}  // namespace ddprun
