// A program that a test runs. The test reads its output line by line, every wait has a timeout, and the
// program does not outlive its Child object.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"

namespace ddprun {

using Environment = std::vector<std::pair<std::string, std::string>>;

// How a child ended: it exited with `code`, or `signal` killed it.
struct ChildEnd {
  int code = -1;   // -1 if the child did not exit
  int signal = 0;  // 0 if no signal killed the child
  bool operator==(const ChildEnd&) const = default;
};

//   Threads: one caller at a time.
class Child {
 public:
  // Starts `argv` with exactly this environment. Aborts the test on failure.
  Child(const std::vector<std::string>& argv, const Environment& environment);
  // Kills the child if Wait has not returned its end.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Reads standard output up to the next line that contains `part`, and returns this line; nullopt at the end
  // of the output or on timeout.
  std::optional<std::string> AwaitLine(const std::string& part, Duration timeout = seconds(30));
  // Like AwaitLine, for standard error.
  std::optional<std::string> AwaitErrLine(const std::string& part, Duration timeout = seconds(30));

  // Reads standard output and standard error to their ends, and waits for the child; nullopt on timeout.
  std::optional<ChildEnd> Wait(Duration timeout = seconds(30));

  pid_t pid() const { return pid_; }
  void Signal(int signo);
  // Closes the child's standard input.
  void EndInput();

  // The output read so far.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;
    std::string text;
    size_t used = 0;  // bytes consumed by Await
  };
  std::optional<std::string> Await(Stream& stream, const std::string& part, Duration timeout);
  // Waits for output and reads it. Returns false at the end of the output or on timeout.
  bool Pump(TimePoint deadline);

  pid_t pid_ = -1;
  int in_ = -1;
  Stream out_, err_;
  std::optional<ChildEnd> end_;
};

}  // namespace ddprun
