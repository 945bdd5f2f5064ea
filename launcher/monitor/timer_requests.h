// Splits the byte stream of the watchdog's FIFO into requests. Pure: performs no I/O.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct TimerRequest {
  pid_t pid = 0;       // the process that owns the timer; positive
  std::string scope;   // name of the timer within its process
  double expires = 0;  // seconds since 1970 on this host's wall clock; negative to release the timer
  int signo = 0;       // signal that the process receives on expiry; 0 if the expiry is only logged
  bool releases() const { return expires < 0; }
  bool operator==(const TimerRequest&) const = default;
};

// Parses one line, without its newline.
//   Errors: kInvalidArgument, with the cause and the beginning of the line.
absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line);

// Parses the lines of all clients. A client writes each line, including its newline, with a single write of
// at most PIPE_BUF bytes, so lines of different clients do not interleave. An invalid line is reported as an
// error and does not affect later lines. If a client is killed and leaves a fragment of a line, a complete
// request that follows the fragment on the same line is accepted.
class TimerLines {
 public:
  struct Handlers {
    std::function<void(const TimerRequest&)> request;
    std::function<void(const absl::Status&)> error;
  };

  void Feed(absl::string_view bytes, const Handlers& handlers);
  // The size of the incomplete last line; at most PIPE_BUF.
  size_t buffered_bytes() const { return line_.size(); }

 private:
  void EndOfLine(const Handlers& handlers);

  std::string line_;       // the incomplete last line
  bool too_long_ = false;  // the current line is too long, and the rest of it is discarded
};

}  // namespace ddprun
