// A program run by a test, on pipes or on a terminal of its own: every wait has a deadline, and it is gone
// when the test is.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ddprun {

using Environment = std::vector<std::pair<std::string, std::string>>;

// How a process ended: `code` of exit, or the signal.
struct ProcessEnd {
  int code = -1;
  int signal = 0;
  bool operator==(const ProcessEnd&) const = default;
};

enum class Stdio {
  kPipes,     // out() and err() apart
  kTerminal,  // a session with a terminal; all that it shows is in out()
};

//   Threads: one caller at a time.
class Process {
 public:
  // Starts `argv` with PATH, TMPDIR, a mark of its own, and `more` as its environment. Ends the test when it
  // cannot.
  explicit Process(const std::vector<std::string>& argv, Stdio stdio = Stdio::kPipes,
                   const Environment& more = {});
  ~Process();  // SIGKILL
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // "NAME=VALUE" in the environment of the process and of all that it starts, and of nobody else.
  const std::string& mark() const { return mark_; }

  // The next `count` lines that contain `part`, those between them passed over; fewer: the output or the time
  // ended before.
  std::vector<std::string> AwaitOut(const std::string& part, size_t count = 1,
                                    Duration timeout = seconds(20));
  std::vector<std::string> AwaitErr(const std::string& part, size_t count = 1,
                                    Duration timeout = seconds(20));

  // Until the process itself has ended, whoever holds its outputs then; nothing: the time ended before.
  std::optional<ProcessEnd> Wait(Duration timeout = seconds(20));

  void Signal(int signo);
  // As if typed. Stdio::kTerminal only.
  void Type(const std::string& keys);
  // As if its window were closed. Stdio::kTerminal only.
  void CloseTerminal();

  // What was read so far.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
    size_t used = 0;  // by Await...
  };
  std::vector<std::string> Await(Stream& stream, const std::string& part, size_t count, Duration timeout);
  // Waits for something to read, or for the end of the process, and reads; false: `deadline` came first.
  bool Pump(TimePoint deadline);
  void Read(Stream& stream);

  std::string mark_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  Stream out_, err_;
  std::optional<ProcessEnd> end_;
};

}  // namespace ddprun
