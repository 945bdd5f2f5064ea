#include "launcher/config/driver_call.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/event.h"
#include "base/exit_info.h"
#include "base/text.h"

namespace ddprun {
namespace {

// Interval at which pending signals are looked for.
constexpr Duration kPoll = milliseconds(50);

std::atomic<int> calls = 0;

// Returns the signal that asks this process to end; nullopt if none is pending.
std::optional<int> PendingSignal() {
  sigset_t pending;
  sigpending(&pending);
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
    struct sigaction action {};
    const bool ignored = sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored && sigismember(&pending, signo) == 1) return signo;
  }
  return std::nullopt;
}

}  // namespace

DriverCall::DriverCall() { ++calls; }
DriverCall::~DriverCall() { --calls; }
bool InDriverCall() { return calls > 0; }

std::string DriverHasNotAnswered(Duration within) {
  return absl::StrCat("NVIDIA's driver library has not answered within ", InSeconds(within),
                      ": check with nvidia-smi whether a GPU is broken");
}

absl::Status RunDriverCall(std::function<void()> work, const std::function<void(absl::string_view)>& say,
                           const DriverLimits& limits) {
  const auto ended = std::make_shared<Event>();
  // Exists before this function can return, so that InDriverCall() is true after an error.
  auto call = std::make_shared<DriverCall>();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all,
                  &before);  // The new thread inherits it: signals are for this process's event loop.
  try {
    std::thread([ended, call, work = std::move(work)]() mutable {
      work();
      work = nullptr;
      call.reset();
      ended->Set();
    }).detach();
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to call NVIDIA's driver library: ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  call.reset();

  const TimePoint start = std::chrono::steady_clock::now();
  bool told = false;
  while (!ended->WaitUntil(std::chrono::steady_clock::now() + kPoll)) {
    const Duration waited = std::chrono::steady_clock::now() - start;
    if (const std::optional<int> signo = PendingSignal()) {
      return absl::CancelledError(
          absl::StrCat("received ", SignalName(*signo), " while waiting for NVIDIA's driver library"));
    }
    if (waited >= limits.total) return absl::DeadlineExceededError(DriverHasNotAnswered(limits.total));
    if (waited >= limits.slow && !std::exchange(told, true)) {
      say(absl::StrCat(DriverHasNotAnswered(limits.slow), " (waiting up to ", InSeconds(limits.total), ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ddprun
