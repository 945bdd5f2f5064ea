// stdout and stderr of one worker: to the console, to files, or to both.
//
//   not redirected   stdout is the agent's own where nobody else writes lines to it, and where it is a
//                    terminal or another device; stderr is the agent's own if that is a terminal (isatty and
//                    colours as without us; the agent sees nothing of it, so there is no tail). Otherwise it
//                    goes through the agent, line by line and unchanged: both through one pipe, in the order
//                    of the writes, if the agent's two streams are one.
//   redirected       a file of the worker's own, not seen by the agent; the tail is read from it. With a
//                    limit of size it goes through the agent.
//   tee              through the agent, byte by byte to the file, line by line with a prefix to the console.
//   not shown        nothing of it reaches the console: the file alone if there is one, and of a stderr
//                    without a file the tail.
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
#include "os/unique_fd.h"

namespace ddprun {

class WorkerOutput {
 public:
  struct Plan {
    Streams redirects = {};
    Streams tee = {};
    WorkerFiles files = {};     // a name empty: that output goes to the console alone
    std::string prefix = {};    // of tee, as "[default0]:"
    bool shown = true;          // false: nothing of it goes to the console
    bool alone = true;          // no other worker is shown on this console
    int64_t max_log_bytes = 0;  // of each file; see LogFile
    int pipe_bytes = 0;         // of each pipe, at least; 0: as the system makes them
    // Lines of tee that are shown go there too; none: nowhere.
    std::shared_ptr<FilteredLog> filtered_stdout = {};
    std::shared_ptr<FilteredLog> filtered_stderr = {};
  };
  // The file of a stream, open: at most one of the first two.
  struct StreamFile {
    UniqueFd of_worker;              // which writes it itself
    std::unique_ptr<LogFile> of_us;  // written from here
    absl::Status problem;            // why there is none
  };
  struct Files {
    StreamFile out;
    StreamFile err;
  };

  // May wait for the file system.
  static Files OpenFiles(const Plan& plan);

  // Opens pipes. What cannot be opened is told to the console's `warn`; that output goes to the console
  // instead. So is a file that cannot be written on the way; see FileWriter.
  //   disk: of the files; borrowed.
  WorkerOutput(Console& console, DiskThread& disk, const Plan& plan, Files files);
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;
  ~WorkerOutput() { alive_.End(); }

  // The worker's descriptors 1 and 2, for Spawn.
  int stdout_fd() const { return out_.child_fd; }
  int stderr_fd() const { return err_.child_fd; }
  // To be called after Spawn: from then on the pipes end with the worker.
  void CloseChildEnds();

  // To be called when the worker has ended: `done` comes, once and from the io_context, when all that it
  // wrote has been read and is in its files; the console may still be busy with it, see Console::Flush.
  // After `limit` it comes anyway: what something that the worker started, and that still holds its streams,
  // writes later is lost; a disk that takes nothing still gets all when it does.
  void Drain(Duration limit, std::function<void()> done);

  // The last of its stderr, or of all that it printed if both streams are one; none when it could not be
  // seen. Complete once drained.
  std::optional<std::string> StderrTail() const;
  // StderrTail has both streams.
  bool tail_has_stdout() const { return tail_has_stdout_; }

 private:
  struct Stream {
    int child_fd = -1;                     // what the worker gets
    UniqueFd child_end;                    // child_fd, when it is ours to close
    std::string path;                      // of a file that the worker writes itself
    std::unique_ptr<WorkerStream> passed;  // what passes through us; null: nothing, or all is read
  };
  // What is to be done with one of the two.
  struct StreamSpec {
    bool tee;
    const std::string& path;
    StreamFile& file;
    int console_fd;
    OutputSink* console;
    std::shared_ptr<FilteredLog> filtered;
    OutputTail* tail;  // null: needs none
    bool as_it_is;     // goes to the console's own descriptor when it goes there alone
  };
  struct Look;

  WorkerStream::Sinks SinksOf(const Plan& plan, const StreamSpec& spec);
  void Open(Stream& stream, const Plan& plan, const StreamSpec& spec);
  bool OpenPipe(Stream& stream, const Plan& plan, WorkerStream::Sinks sinks);
  void OpenNullDevice(Stream& stream);
  // At files that the worker wrote itself.
  void LookAtFiles();
  void CheckDrained();

  Console& console_;
  DiskThread& disk_;
  OutputTail tail_;  // of a stderr that passes through us
  Stream out_;
  Stream err_;
  bool sees_stderr_ = false;
  bool tail_has_stdout_ = false;
  std::optional<std::string> file_tail_;  // of a stderr that does not
  int looks_ = 0;                         // of LookAtFiles, to come
  bool overdue_ = false;                  // the drain has reached its limit
  boost::asio::steady_timer limit_;
  std::function<void()> drained_;
  Alive alive_;
};

}  // namespace ddprun
