// The ssh process that connects the starter of --hosts to the agent of one host.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/alive.h"
#include "launcher/hosts/ssh_command.h"
#include "launcher/logs/console.h"
#include "launcher/logs/output_tail.h"
#include "launcher/logs/worker_stream.h"
#include "os/descriptor.h"

namespace ddprun {

// Passes the output on to the console in whole lines, except that a line that does not end within WorkerStream::kHoldLimit is
// shown incomplete.
//   Threads: the thread that runs the io_context. SIGPIPE must be ignored.
//   Owns:    the pipes. The owner of the object waits for the process (SIGCHLD, waitpid) and then calls Finish. If the
//            object is destroyed earlier, the process goes on until the agent, whose life line ends, has exited.
class HostProcess {
 public:
  // Starts `argv`, which is searched on PATH, in a process group of its own, so that signals of the terminal do not reach it.
  //   message: sent to its stdin at once.
  //   started: called at most once, when the agent has read the message.
  //   console: must outlive the object.
  //   Errors:  those of pipe and posix_spawnp.
  static absl::StatusOr<std::unique_ptr<HostProcess>> Start(boost::asio::io_context& io, Console& console,
                                                            const std::vector<std::string>& argv,
                                                            std::string message,
                                                            std::function<void()> started);
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;
  ~HostProcess() { alive_.End(); }

  pid_t pid() const { return pid_; }
  bool started() const { return started_; }
  // Appends a frame to the life line. No-op after CloseLine.
  void Send(char frame);
  // Ends the life line, after all that was sent.
  void CloseLine();
  // Sends a signal to ssh itself and the processes that it has started, such as a ProxyCommand.
  //   REQUIRES: the process has not been waited for.
  void Kill(int signo);
  // Passes on the output that is in the pipes, and closes them. Processes that hold other ends of the pipes, such as the
  // master of shared connections of ssh, do not matter.
  //   wait_status: of waitpid.
  SshEnd Finish(int wait_status);

 private:
  HostProcess(boost::asio::io_context& io, Console& console, std::string message,
              std::function<void()> started);

  absl::Status Spawn(const std::vector<std::string>& argv);
  void WriteLine();
  void AwaitStarted();
  // Reads what there is of stdout, up to the line that says that the agent has started, and passes on what precedes it.
  void ReadStarted();
  void OnLine();

  boost::asio::io_context& io_;
  Console& console_;
  pid_t pid_ = -1;
  boost::asio::posix::stream_descriptor line_;  // stdin of ssh
  std::string unsent_;
  std::string sending_;  // precedes unsent_; does not change while writing_ is true
  bool writing_ = false;
  bool closing_ = false;
  boost::asio::posix::stream_descriptor early_;  // stdout of ssh until the agent has started
  std::string early_text_;                       // the incomplete last line
  bool started_ = false;
  std::function<void()> on_started_;
  OutputTail tail_;                    // of stderr
  std::unique_ptr<WorkerStream> out_;  // stdout of ssh after the agent has started
  std::unique_ptr<WorkerStream> err_;
  Alive alive_;
};

}  // namespace ddprun
