// A command whose output is collected: py-spy or gdb.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "os/descriptor.h"

namespace ddprun {

struct ToolCommand {
  std::string file;               // absolute path
  std::vector<std::string> argv;  // with the name of the program
  std::vector<std::string> env;   // complete: "NAME=value"
};

// A running tool. It leads its own process group, has the working directory /, stdin from /dev/null, no other descriptors of this
// process, default signal dispositions and an empty signal mask. It receives SIGKILL when the thread that has started it ends.
//   Threads: all calls on the thread that has made the object.
class ToolProcess {
 public:
  // Starts the tool. Does not wait for exec. `max_output` is in bytes, of stdout and stderr together.
  ToolProcess(const ToolCommand& command, size_t max_output);
  ToolProcess(const ToolProcess&) = delete;
  ToolProcess& operator=(const ToolProcess&) = delete;
  // Kills the process group. Does not wait: a tool that has not ended yet is reaped when the next object is made.
  ~ToolProcess();

  // 0, or the errno with which the start has failed. The object is then in the state after the end of the tool.
  int start_error() const { return start_error_; }
  pid_t pid() const { return pid_; }
  // Becomes readable when there is output; -1 after the end of the output.
  int output_fd() const { return output_fd_.get(); }
  // The first `max_output` bytes of the output so far.
  const std::string& output() const { return output_; }
  // True if the tool has written more; it is then being killed.
  bool too_much_output() const { return too_much_output_; }
  // The status as for waitpid(), once the tool has ended; -1 if it is unknown.
  int status() const { return status_; }

  // Reads the output that there is, without blocking. Returns true if the tool has ended; the rest of its process group is then killed.
  bool Poll();
  // Sends SIGKILL to the process group. Poll() returns true soon.
  void Kill();

 private:
  void Start(const ToolCommand& command);
  void Read();

  const size_t max_output_;
  pid_t pid_ = -1;
  int start_error_ = 0;
  bool ended_ = false;
  UniqueFd output_fd_;
  std::string output_;
  bool too_much_output_ = false;
  int status_ = -1;
};

}  // namespace ddprun
