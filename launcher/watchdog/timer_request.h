// What a worker writes into the watchdog's FIFO, one line for each request, torchrun's format:
//   {"version": 1, "pid": 123, "scope_id": "step", "expiration_time": 1795248899.5, "signal": 9}
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct TimerRequest {
  pid_t pid = 0;       // > 0: whose timer it is
  std::string scope;   // the timer's name within its process
  double expires = 0;  // seconds since 1970, the wall clock of this host; negative: release it
  int signo = 0;       // what the process gets when the time is over; 0: only a word is said
  bool releases() const { return expires < 0; }
  bool operator==(const TimerRequest&) const = default;
};

// One line, without its end.
//   Errors: kInvalidArgument: what is wrong with it, with its beginning.
absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line);

}  // namespace ddprun
