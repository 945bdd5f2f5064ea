#include "launcher/config/driver_call.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
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

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;  // guarded by mutex
};

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
  const auto shared = std::make_shared<Shared>();
  // Exists before this function can return, so that InDriverCall() is true after an error.
  auto call = std::make_shared<DriverCall>();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all,
                  &before);  // The new thread inherits it: signals are for this process's event loop.
  try {
    std::thread([shared, call, work = std::move(work)]() mutable {
      work();
      work = nullptr;
      call.reset();
      const std::lock_guard lock(shared->mutex);
      shared->ended = true;
      shared->changed.notify_all();
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
  std::unique_lock lock(shared->mutex);
  while (!shared->changed.wait_for(lock, kPoll, [&] { return shared->ended; })) {
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
