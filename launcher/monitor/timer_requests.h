// Splits the byte stream of the watchdog's FIFO into requests. Pure.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct TimerRequest {
  pid_t pid = 0;       // > 0: the process that owns the timer
  std::string scope;   // name of the timer within its process
  double expires = 0;  // seconds since 1970 on this host's wall clock; negative: release the timer
  int signo = 0;       // sent to the process on expiry; 0: the expiry is only logged
  bool releases() const { return expires < 0; }
  bool operator==(const TimerRequest&) const = default;
};

// Parses one line, without its newline.
//   Errors: kInvalidArgument, with the cause and the beginning of the line.
absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line);

// A client writes each line, including its newline, with one write of at most PIPE_BUF bytes, so lines of
// different clients do not interleave. An invalid line is an error and does not affect later lines. If a
// client dies and leaves a fragment, a complete request that follows it on the same line is accepted.
class TimerLines {
 public:
  struct Handlers {
    std::function<void(const TimerRequest&)> request;
    std::function<void(const absl::Status&)> error;
  };

  void Feed(absl::string_view bytes, const Handlers& handlers);
  // At most PIPE_BUF.
  size_t buffered_bytes() const { return line_.size(); }

 private:
  void EndOfLine(const Handlers& handlers);

  std::string line_;       // the incomplete last line
  bool too_long_ = false;  // the rest of the line is discarded
};

}  // namespace ddprun
