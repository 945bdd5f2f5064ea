// Sends stdout and stderr of one worker to the console, to files, or to both. The last lines of stderr, the
// tail, are kept for the failure report.
//
//   not redirected   The worker inherits the agent's stdout in two cases. In the first case, the agent's
//                    stdout is a terminal or another device. In the second case, the agent's stdout and
//                    stderr are different and no other worker is shown, so no other lines are written to
//                    stdout. If the agent's stderr is a terminal, the worker inherits this terminal. On an
//                    inherited stream, isatty() and colors work as they do without the agent. The agent does
//                    not see the output, so an inherited stderr has no tail. A stream that is not inherited
//                    passes through the agent unchanged, in whole lines. If the agent's stdout and stderr are
//                    the same, the worker's two streams share one pipe, which keeps the order of the writes.
//   redirected       The worker writes to the file directly, and the agent reads the tail from the file. If
//                    the file has a size limit, the stream passes through the agent instead.
//   tee              The stream passes through the agent. The file receives the unchanged bytes. The console
//                    receives whole lines with a prefix.
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
    WorkerFiles files = {};     // a stream whose path is empty is written only to the console
    std::string prefix = {};    // prefix of tee lines on the console, such as "[default0]:"
    bool shown = true;          // whether output is written to the console
    bool alone = true;          // no other worker is shown on this console
    int64_t max_log_bytes = 0;  // limit for each file; see LogFile
    int pipe_bytes = 0;         // requested size of each pipe; 0 means the system's default
    // Log files for the tee lines that match a filter; null without filters. Not used if `shown` is false.
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

  // Opens the log files of `plan`. May block on the file system.
  static Files OpenFiles(const Plan& plan);

  // Opens the pipes. If a file or pipe cannot be opened, the error is reported to the console's `warn`, and
  // the stream, if it is shown, is written only to the console. Later write errors are also reported to
  // `warn`; see FileWriter.
  //   disk: the thread for the files; borrowed.
  WorkerOutput(Console& console, DiskThread& disk, const Plan& plan, Files files);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput() { alive_.End(); }

  // The descriptors for the worker's stdout and stderr, for WardenClient::Spawn.
  int stdout_fd() const { return out_.child_fd; }
  int stderr_fd() const { return err_.child_fd; }
  // Closes the descriptors above. Call after Spawn; otherwise the pipes do not reach end of file when the
  // worker exits.
  void CloseChildEnds();

  // Calls `done` once, on the io_context, when all output of the worker has been read and written to the
  // worker's files. At that time, some output may not have been written to the console (see Console::Flush).
  // `done` is called after `limit` at the latest. If processes that the worker started hold the streams open
  // longer than `limit`, their later output is lost. Output that was read earlier is written to the files,
  // even if the disk stalls.
  //   REQUIRES: the worker has ended.
  void Drain(Duration limit, std::function<void()> done);

  // Returns the tail of stderr, or of both streams if they share a pipe; nullopt if the agent could not see
  // the stream. The tail is complete when Drain has called `done`.
  std::optional<std::string> StderrTail() const;
  // True if StderrTail contains both streams.
  bool tail_has_stdout() const { return tail_has_stdout_; }

 private:
  struct Stream {
    int child_fd = -1;                     // the worker's descriptor
    UniqueFd child_end;                    // owns child_fd, unless child_fd is the console's
    std::string path;                      // path of the file, if the worker writes the file itself
    std::unique_ptr<WorkerStream> passed;  // null unless the stream passes through the agent
  };
  // How to open one of the two streams.
  struct StreamSpec {
    bool tee;
    const std::string& path;
    StreamFile& file;
    int console_fd;
    OutputSink* console;
    std::shared_ptr<FilteredLog> filtered;
    OutputTail* tail;  // null if no tail is kept
    bool inherits;     // the worker gets console_fd if the stream is written only to the console
  };
  struct FileState;

  WorkerStream::Sinks SinksOf(const Plan& plan, const StreamSpec& spec);
  void Open(Stream& stream, const Plan& plan, const StreamSpec& spec);
  bool OpenPipe(Stream& stream, const Plan& plan, WorkerStream::Sinks sinks);
  void OpenNullDevice(Stream& stream);
  // Checks the files that the worker wrote itself, and reads the tail of stderr from its file.
  void InspectFiles();
  void CheckDrained();

  Console& console_;
  DiskThread& disk_;
  OutputTail tail_;  // tail of stderr, if stderr passes through the agent
  Stream out_;
  Stream err_;
  bool sees_stderr_ = false;
  bool tail_has_stdout_ = false;
  std::optional<std::string> file_tail_;  // tail of stderr, if the worker wrote stderr to a file
  int inspections_ = 0;                   // number of pending jobs of InspectFiles
  bool overdue_ = false;                  // the drain has reached its limit
  boost::asio::steady_timer limit_;
  std::function<void()> drained_;
  Alive alive_;
};

}  // namespace ddprun
