#include "rendezvous/client/connect_retry.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

constexpr Duration kFirstRetry = milliseconds(10);
constexpr Duration kLastRetry = seconds(1);

}  // namespace

absl::Status ConnectWithRetries(const std::string& what, Duration timeout,
                                absl::FunctionRef<absl::Status(TimePoint deadline)> attempt) {
  const TimePoint deadline = steady_clock::now() + timeout;
  std::minstd_rand random(std::random_device{}());
  for (Duration wait = kFirstRetry;; wait = std::min<Duration>(2 * wait, kLastRetry)) {
    absl::Status status = attempt(deadline);
    if (!absl::IsUnavailable(status)) return WithContext(std::move(status), what);
    // Many clients start at once; they should not come back at once.
    const Duration pause = wait / 2 + wait / 2 * (random() % 1024) / 1024;
    if (steady_clock::now() + pause >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(what, " for ", ToMillis(timeout), " ms: ", status.message()));
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ddprun
