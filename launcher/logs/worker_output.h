// Sends stdout and stderr of one worker to the console, to files, or to both.
//
//   not redirected   The worker inherits the agent's stdout if stdout is a terminal or another device, or if
//                    no other process writes lines to it. The worker inherits the agent's stderr if stderr is
//                    a terminal. On an inherited stream, isatty and colours work as without the agent, but
//                    the agent does not see the output, so an inherited stderr has no tail. A stream that is
//                    not inherited passes through the agent unchanged, in whole lines. If the agent's stdout
//                    and stderr are the same, both streams pass through one pipe, in the order of the writes.
//   redirected       The worker writes the file itself, and the tail is read from the file. If the file has a
//                    size limit, the stream passes through the agent instead.
//   tee              The stream passes through the agent: unchanged to the file, and in whole lines with a
//                    prefix to the console.
//   not shown        The stream is written only to its file, if it has one. Without a file, only the tail of
//                    stderr is kept.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/alive.h"
#include "base/time.h"
#include "launcher/config/stream_choice.h"
#include "launcher/logs/console.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/output_tail.h"
#include "launcher/logs/worker_stream.h"
#include "os/descriptor.h"

namespace ddprun {

class WorkerOutput {
 public:
  struct Plan {
    Streams redirects = {};
    Streams tee = {};
    WorkerFiles files = {};     // empty path: that stream is written only to the console
    std::string prefix = {};    // prefix of tee lines on the console, such as "[default0]:"
    bool shown = true;          // false: no output is written to the console
    bool alone = true;          // no other worker is shown on this console
    int64_t max_log_bytes = 0;  // limit for each file; see LogFile
    int pipe_bytes = 0;         // minimum size of each pipe; 0: the system's default
    // These also receive the tee lines that are shown; null: not used.
    std::shared_ptr<FilteredLog> filtered_stdout = {};
    std::shared_ptr<FilteredLog> filtered_stderr = {};
  };
  // The open file of a stream. At most one of `of_worker` and `of_us` is set.
  struct StreamFile {
    UniqueFd of_worker;              // written by the worker
    std::unique_ptr<LogFile> of_us;  // written by the agent
    absl::Status problem;            // why the file could not be opened
  };
  struct Files {
    StreamFile out;
    StreamFile err;
  };

  // May block on the file system.
  static Files OpenFiles(const Plan& plan);

  // Opens pipes. A file or pipe that cannot be opened is reported to the console's `warn`, and its stream, if
  // shown, is written to the console instead. Later write errors are also reported to `warn`; see FileWriter.
  //   disk: the thread for the files; borrowed.
  WorkerOutput(Console& console, DiskThread& disk, const Plan& plan, Files files);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput() { alive_.End(); }

  // The worker's descriptors 1 and 2, for Spawn.
  int stdout_fd() const { return out_.child_fd; }
  int stderr_fd() const { return err_.child_fd; }
  // Call after Spawn. From then on, the pipes reach end of file when the worker exits.
  void CloseChildEnds();

  // Call when the worker has ended. Calls `done` once, on the io_context, when all its output has been read
  // and written to its files; some of it may not be on the console yet (see Console::Flush). After `limit`,
  // `done` is called in any case. Later output from processes that the worker started and that still hold its
  // streams is then lost, but all output that was read still reaches the files, even if the disk stalls.
  void Drain(Duration limit, std::function<void()> done);

  // The tail of stderr, or of both streams if they share a pipe; nullopt if the agent could not see the
  // stream. Complete after Drain.
  std::optional<std::string> StderrTail() const;
  // True if StderrTail contains both streams.
  bool tail_has_stdout() const { return tail_has_stdout_; }

 private:
  struct Stream {
    int child_fd = -1;                     // the worker's descriptor
    UniqueFd child_end;                    // owns child_fd, unless it is the console's
    std::string path;                      // path of a file that the worker writes itself
    std::unique_ptr<WorkerStream> passed;  // null if the stream does not pass, or no longer passes, the agent
  };
  // How to open one of the two streams.
  struct StreamSpec {
    bool tee;
    const std::string& path;
    StreamFile& file;
    int console_fd;
    OutputSink* console;
    std::shared_ptr<FilteredLog> filtered;
    OutputTail* tail;  // null: no tail is kept
    bool inherits;     // the worker gets console_fd if the stream is written only to the console
  };
  struct FileState;

  WorkerStream::Sinks SinksOf(const Plan& plan, const StreamSpec& spec);
  void Open(Stream& stream, const Plan& plan, const StreamSpec& spec);
  bool OpenPipe(Stream& stream, const Plan& plan, WorkerStream::Sinks sinks);
  void OpenNullDevice(Stream& stream);
  // Checks files that the worker wrote itself and reads the tail of stderr.
  void InspectFiles();
  void CheckDrained();

  Console& console_;
  DiskThread& disk_;
  OutputTail tail_;  // tail of a stderr that passes through the agent
  Stream out_;
  Stream err_;
  bool sees_stderr_ = false;
  bool tail_has_stdout_ = false;
  std::optional<std::string> file_tail_;  // tail of a stderr that the worker wrote to a file
  int inspections_ = 0;                   // pending jobs of InspectFiles
  bool overdue_ = false;                  // the drain has reached its limit
  boost::asio::steady_timer limit_;
  std::function<void()> drained_;
  Alive alive_;
};

}  // namespace ddprun
