// A program that a test runs, with pipes or a terminal, on this machine or on a simulated host. Every wait
// has a deadline.
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

// How a process ended: its exit code, or the signal that killed it, with `code` -1.
struct ProcessEnd {
  int code = -1;
  int signal = 0;
  bool operator==(const ProcessEnd&) const = default;
};

enum class Stdio {
  kPipes,     // separate out() and err()
  kTerminal,  // a new session with a terminal; out() has the output of both streams
};

// Which process a Process observes. kDirect: the program that the constructor starts. kReported: another
// child of the test. The program creates this child, writes the child's pid on a line to descriptor 3, and
// exits (host_tool.cc).
enum class Birth { kDirect, kReported };

// A process with pipes or a terminal. While the test waits for any Process, the outputs of all processes are
// read, so that no process blocks on a full pipe.
//   Threads: one caller at a time, over all objects.
class Process {
 public:
  // Starts `argv` with PATH, TMPDIR, OMP_NUM_THREADS, a unique mark, and `more` as its environment. Aborts
  // the test on failure.
  explicit Process(const std::vector<std::string>& argv, Stdio stdio = Stdio::kPipes,
                   const Environment& more = {}, Birth birth = Birth::kDirect);
  ~Process();  // kills the process
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // A variable "NAME=VALUE" that only this process and its descendants have in their environment.
  const std::string& mark() const { return mark_; }

  // Waits for the next `count` lines that contain `part`, and skips other lines. Returns fewer lines if the
  // output ends or the timeout expires first.
  std::vector<std::string> AwaitOut(const std::string& part, size_t count = 1,
                                    Duration timeout = seconds(20));
  std::vector<std::string> AwaitErr(const std::string& part, size_t count = 1,
                                    Duration timeout = seconds(20));

  // The time at which the last line returned by Await... was read.
  TimePoint found_at() const { return found_at_; }

  // Waits until the process has ended, even if other processes hold its outputs open. Returns nullopt on
  // timeout.
  std::optional<ProcessEnd> Wait(Duration timeout = seconds(20));

  void Signal(int signo);
  // Types `keys` on the terminal. Only for Stdio::kTerminal.
  void Type(const std::string& keys);
  // Hangs up the terminal, like closing its window. Only for Stdio::kTerminal.
  void CloseTerminal();

  // Until FreeOut, stdout is read only while the test waits for a line of it, so the program blocks when it
  // is about 4 KiB of output ahead of the test.
  void HoldOut();
  void FreeOut();

  // The output read so far.
  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

 private:
  struct Stream {
    int fd = -1;
    bool held = false;
    std::string text;
    size_t used = 0;                        // bytes consumed by Await...
    std::map<size_t, TimePoint> read_at{};  // read times, by the size of the text after each read
  };
  std::vector<std::string> Await(Stream& stream, const std::string& part, size_t count, Duration timeout);
  // Waits until the process writes or ends, and reads its output. Returns false on timeout. Reads `wanted`
  // even if that stream is held.
  bool Pump(TimePoint deadline, const Stream* wanted = nullptr);
  static void Read(Stream& stream);
  // Returns whether the process has ended. If it has, reaps it and reads its remaining output.
  bool Collect();

  std::string mark_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  Stream out_, err_;
  std::optional<ProcessEnd> end_;
  TimePoint found_at_{};
};

}  // namespace ddprun
