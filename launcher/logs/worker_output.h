// stdout and stderr of one worker: to the console, to files, or to both.
//
//   not redirected   the worker has the agent's own stdout, and its stderr if that is a terminal (isatty and
//                    colours as without us; the agent sees nothing of it, so there is no tail). A stderr that
//                    is no terminal goes through the agent unchanged, which keeps its tail.
//   redirected       a file of the worker's own, not seen by the agent; the tail is read from it.
//   tee              through the agent, byte by byte to the file, line by line with a prefix to the console.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/config/stream_choice.h"
#include "launcher/logs/line_prefixer.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/output_sink.h"
#include "launcher/logs/output_tail.h"
#include "launcher/process/alive.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

// The agent's own two streams. Outlives the workers' output.
//   Console file descriptors are borrowed for its lifetime.
class Console {
 public:
  // `warn` gets each problem with output once; nothing else happens because of it.
  Console(boost::asio::io_context& io, std::function<void(const absl::Status&)> warn, int stdout_fd = 1,
          int stderr_fd = 2);

  // All that workers wrote is out, or `limit` has passed. `done` is called once, from the io_context.
  void Flush(Duration limit, std::function<void()> done);

 private:
  friend class WorkerOutput;

  boost::asio::io_context& io_;
  const std::function<void(const absl::Status&)> warn_;
  const int stdout_fd_;
  const int stderr_fd_;
  const bool stderr_is_terminal_;
  const std::unique_ptr<OutputSink> out_;
  const std::unique_ptr<OutputSink> err_;
  Alive alive_;
};

class WorkerOutput {
 public:
  struct Plan {
    Streams redirects;
    Streams tee;
    WorkerFiles files;   // a name empty: that output goes to the console alone
    std::string prefix;  // of tee, as "[default0]:"
  };

  // Opens files and pipes. One that cannot be opened is told to the console's `warn`; that output goes to the
  // console instead. So is one that cannot be written on the way; see OutputSink.
  WorkerOutput(Console& console, const Plan& plan);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput();

  // The worker's descriptors 1 and 2, for Spawn.
  int stdout_fd() const { return out_.child_fd; }
  int stderr_fd() const { return err_.child_fd; }
  // To be called after Spawn: from then on the pipes end with the worker.
  void CloseChildEnds();

  // To be called when the worker has ended: `done` comes, once and from the io_context, when all that it
  // wrote has been passed on. When something that it started still holds its streams, that is after `limit`,
  // and what that writes later is lost.
  void Drain(Duration limit, std::function<void()> done);

  // The last of its stderr; none when it could not be seen. Complete once drained.
  std::optional<std::string> StderrTail() const;

 private:
  struct Stream {
    explicit Stream(boost::asio::io_context& io) : pipe(io) {}

    int child_fd = -1;                           // what the worker gets
    UniqueFd child_end;                          // child_fd, when it is ours to close
    boost::asio::posix::stream_descriptor pipe;  // what it writes, when that passes through us
    std::string path;                            // of a file that the worker writes itself
    std::unique_ptr<OutputSink> file;
    OutputSink* console = nullptr;
    std::optional<LinePrefixer> prefixer;  // none: bytes go to the console as they come
    std::optional<OutputTail> tail;
  };

  void Redirect(Stream& stream, const std::string& path, int console_fd);
  // A worker that writes a file itself sees by itself that the disk is full; the user may see nothing.
  void WarnIfDiskIsFull(const Stream& stream);
  bool OpenPipe(Stream& stream);
  void Tee(Stream& stream, const std::string& path, OutputSink& sink, int console_fd,
           const std::string& prefix);
  void WaitForBytes(Stream& stream);
  void OnReadable(Stream& stream);
  bool PassOn(Stream& stream);
  void Close(Stream& stream);
  void CheckDrained();

  Console& console_;
  Stream out_;
  Stream err_;
  boost::asio::steady_timer limit_;
  std::function<void()> drained_;
  Alive alive_;
};

}  // namespace ddprun
