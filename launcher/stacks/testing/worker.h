// Worker processes and fake tools of the tests.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun {

// A new folder below TEST_TMPDIR.
std::string NewFolder();

// Writes an executable shell script.
void WriteScript(const std::string& path, const std::string& body);

// Copies the program known_function to `path`.
void CopyWorker(const std::string& path);

// Runs known_function (`testing/known_function.cc`), or a copy of it. Killed by the destructor.
class Worker {
 public:
  struct Options {
    std::string program = "launcher/stacks/known_function";
    int threads = 0;
    std::vector<std::string> env = {};
  };
  explicit Worker(const Options& options);
  Worker() : Worker(Options{}) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  pid_t pid() const { return pid_; }
  // True if the process answers a byte: it runs. Waits at most 20 s.
  bool Answers();

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

// Waits until the process has this state; false after 20 s.
bool AwaitState(pid_t pid, char state);
// Waits until the process has ended or is a zombie; false after 20 s.
bool AwaitEnd(pid_t pid);

}  // namespace ddprun
