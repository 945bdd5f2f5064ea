// Cuts what comes out of the watchdog's FIFO into requests. Pure.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
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

// A client writes a line with its end in one piece of at most PIPE_BUF bytes, so the lines of many never mix.
// What is no such line is an error and harms nobody else's: the next line is read as ever, and a whole
// request that follows a piece of another one on the same line, whose writer has died, is heard too.
class TimerLines {
 public:
  struct Handlers {
    std::function<void(const TimerRequest&)> request;
    std::function<void(const absl::Status&)> error;
  };

  void Feed(absl::string_view bytes, const Handlers& handlers);
  // Never more than PIPE_BUF.
  size_t buffered_bytes() const { return line_.size(); }

 private:
  void EndOfLine(const Handlers& handlers);

  std::string line_;       // the beginning of one
  bool too_long_ = false;  // the rest of this line is dropped
};

}  // namespace ddprun
