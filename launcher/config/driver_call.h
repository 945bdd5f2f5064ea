// Calls of NVIDIA's driver library, which may block forever if a GPU is broken.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// Exists while a thread may be in a call of the library.
//   Threads: any.
class DriverCall {
 public:
  DriverCall();
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
};

// Whether a thread may be in a call of the library. Then the process must end with _exit: the library's destructors, which
// exit() runs, are not prepared for that.
bool InDriverCall();

struct DriverLimits {
  Duration slow = seconds(5);    // after this time, users are told that the library has not answered
  Duration total = seconds(60);  // after this time, the library counts as broken
};

// "NVIDIA's driver library has not answered within 5 s", and what to do.
std::string DriverHasNotAnswered(Duration within);

// Runs `work`, which calls the library, on a thread of its own, and waits for its end. After an error the thread still runs.
//   work:   must use only objects that it owns.
//   say:    receives one line if the library is slow.
//   Errors: kDeadlineExceeded: it has not ended within limits.total; kCancelled: SIGTERM, SIGINT, SIGQUIT or SIGHUP is
//           pending, because this process blocks it (HoldSignals) and does not ignore it; kResourceExhausted: no thread.
absl::Status RunDriverCall(std::function<void()> work, const std::function<void(absl::string_view)>& say,
                           const DriverLimits& limits = {});

// Like RunDriverCall, for work that returns a result.
template <typename T>
absl::StatusOr<T> AskDriver(std::function<absl::StatusOr<T>()> work,
                            const std::function<void(absl::string_view)>& say,
                            const DriverLimits& limits = {}) {
  const auto result = std::make_shared<std::optional<absl::StatusOr<T>>>();
  const absl::Status ended =
      RunDriverCall([result, work = std::move(work)] { *result = work(); }, say, limits);
  if (!ended.ok()) return ended;
  return *std::move(*result);
}

}  // namespace ddprun
