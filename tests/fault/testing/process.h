// A program run by a test, on pipes or on a terminal of its own, here or on a host of the test's: every wait
// has a deadline, and it is gone when the test is.
#pragma once

#include <sys/types.h>

#include <map>
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

// Who is watched: the program that was started, or a child of the test's that this program made and whose pid
// it told in a line on descriptor 3 before it ended (host_tool.cc).
enum class Birth { kDirect, kTold };

// While the test waits for one of them, the outputs of all are read: none stands still because nobody
// listens.
//   Threads: one caller at a time, of all of them.
class Process {
 public:
  // Starts `argv` with PATH, TMPDIR, a mark of its own, and `more` as its environment. Ends the test when it
  // cannot.
  explicit Process(const std::vector<std::string>& argv, Stdio stdio = Stdio::kPipes,
                   const Environment& more = {}, Birth birth = Birth::kDirect);
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

  // When the last line that Await... returned was read from the pipe.
  TimePoint found_at() const { return found_at_; }

  // Until the process itself has ended, whoever holds its outputs then; nothing: the time ended before.
  std::optional<ProcessEnd> Wait(Duration timeout = seconds(20));

  void Signal(int signo);
  // As if typed. Stdio::kTerminal only.
  void Type(const std::string& keys);
  // As if its window were closed. Stdio::kTerminal only.
  void CloseTerminal();

  // From now on its standard output is read only while the test waits for a line of it: who prints much goes
  // on no further than a page of text ahead of the test. Until FreeOut.
  void HoldOut();
  void FreeOut();

  // What was read so far.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;
    bool held = false;
    std::string text;
    size_t used = 0;                        // by Await...
    std::map<size_t, TimePoint> read_at{};  // by the text's size then
  };
  std::vector<std::string> Await(Stream& stream, const std::string& part, size_t count, Duration timeout);
  // Waits for something to read, or for the end of the process, and reads; false: `deadline` came first.
  // `wanted` is read though it is held.
  bool Pump(TimePoint deadline, const Stream* wanted = nullptr);
  static void Read(Stream& stream);
  // Whether it has ended: then it is waited for, and everything it wrote is read.
  bool Collect();

  std::string mark_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  Stream out_, err_;
  std::optional<ProcessEnd> end_;
  TimePoint found_at_{};
};

}  // namespace ddprun
