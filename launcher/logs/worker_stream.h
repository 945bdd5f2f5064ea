// One stream of one worker on its way through the agent: to a file as it comes, to the console line by line.
//
// A worker never waits for the console's reader as long as the file has everything: what the console has no
// room for is read from the file again when there is room. Without such a file (none is wanted, the disk is
// full, the file is as large as it may be) the worker waits, as if it wrote to the console itself.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/logs/filtered_log.h"
#include "launcher/logs/line_prefixer.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/output_sink.h"
#include "launcher/logs/output_tail.h"
#include "launcher/process/alive.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

// Lines come out whole. One whose end does not come within kHoldLimit is shown as far as it is, as a line;
// what follows is a line of its own.
//   Order:   what is read comes out in that order, in the file and on the console.
//   Threads: that of the io_context.
class WorkerStream {
 public:
  static constexpr Duration kHoldLimit = seconds(1);

  // Where it goes to; each may be missing. Pointers are borrowed.
  struct Ways {
    std::unique_ptr<LogFile> file;
    OutputSink* console = nullptr;
    std::optional<std::string> prefix;  // of lines on the console; none: bytes go there as they come
    std::optional<FilteredStream> filtered;
    OutputTail* tail = nullptr;  // until closed
  };

  // `pipe` is the reading end, not blocking. `closed` is called once, from the io_context: the end of the
  // stream was read, and all but the console has it.
  WorkerStream(boost::asio::io_context& io, UniqueFd pipe, Ways ways, std::function<void()> closed);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream() { alive_.End(); }

  bool closed() const { return !pipe_.is_open(); }
  // Takes what is in the pipe, and nothing after it. `closed` is not called any more.
  void Close();

  // The console has not been given everything yet.
  bool behind() const { return behind_at_.has_value() || !unsaved_.empty(); }
  // `shown` is called once, from inside: not behind any more. REQUIRES: closed() and behind().
  void WhenShown(std::function<void()> shown) { shown_ = std::move(shown); }

 private:
  bool CanTake() const;
  void AwaitBytes();
  void OnReadable();
  bool Take();
  void Pass(absl::string_view bytes);
  void End();

  void Show(absl::string_view bytes);
  void AwaitRoom();
  void OnRoom();
  void CatchUp();
  void GiveUp();
  void AwaitEndOfLine();

  boost::asio::posix::stream_descriptor pipe_;
  Ways ways_;
  std::function<void()> closed_;
  std::function<void()> shown_;
  std::optional<LinePrefixer> prefixer_;
  bool stalled_ = false;        // there is something to read, and nobody to take it
  bool awaiting_room_ = false;  // on the console
  // What the console lacks: the file from there on, and then what the file lacks.
  std::optional<int64_t> behind_at_;
  std::string unsaved_;
  boost::asio::steady_timer hold_;  // runs as long as a line is held back
  bool holding_ = false;            // hold_ runs
  TimePoint fed_ = {};              // when the prefixer last got something
  Alive alive_;
};

}  // namespace ddprun
