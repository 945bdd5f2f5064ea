// One stream of one worker on its way through the agent: to a file as it comes, to the console line by line.
//
// A worker never waits for the console's reader as long as the file has everything: what the console has no
// room for is read from the file again when there is room. Without such a file (none is wanted, the disk is
// full, the file is as large as it may be) the worker waits, as if it wrote to the console itself. A disk
// that takes nothing makes it wait once the disk's DiskThread is full.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "base/alive.h"
#include "base/time.h"
#include "launcher/logs/chunk.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/lines.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/output_sink.h"
#include "launcher/logs/output_tail.h"
#include "os/unique_fd.h"

namespace ddprun {

// Lines come out whole. One whose end does not come within kHoldLimit is shown as far as it is: with a prefix
// as a line, and what follows is a line of its own; without one what follows continues it, unless somebody
// else has written meanwhile.
//   Order:   what is read comes out in that order, in the file and on the console.
//   Threads: that of the io_context.
class WorkerStream {
 public:
  static constexpr Duration kHoldLimit = seconds(1);

  // Where it goes to; each may be missing. Pointers are borrowed.
  struct Sinks {
    std::unique_ptr<QueuedLog> file;
    OutputSink* console = nullptr;
    std::optional<std::string> prefix;  // of lines on the console; none: lines go there as they are
    std::optional<FilteredStream> filtered;
    DiskThread* disk = nullptr;  // of `file` and `filtered`; null: there is neither
    OutputTail* tail = nullptr;  // until closed
  };

  // `pipe` is the reading end, not blocking. `closed` is called once, from the io_context: the end of the
  // stream was read, and all but the console has it.
  WorkerStream(boost::asio::io_context& io, UniqueFd pipe, Sinks sinks, std::function<void()> closed);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream();

  // The end was read, and the file has everything.
  bool closed() const { return !pipe_.is_open() && saved_; }
  // Takes what is in the pipe, and nothing after it. `closed` is not called any more.
  void Close();

  // The console has not been given everything yet.
  bool behind() const { return !lacking_.empty() || !unsaved_.empty(); }
  // `shown` is called once, from inside: not behind any more. REQUIRES: behind(), and the pipe is closed.
  void WhenShown(std::function<void()> shown) { shown_ = std::move(shown); }

 private:
  bool ConsoleHasRoom() const { return sinks_.console == nullptr || (!behind() && !sinks_.console->full()); }
  bool DiskHasRoom() const { return sinks_.disk == nullptr || !sinks_.disk->full(); }
  bool CanTake() const;
  void AwaitBytes();
  void OnReadable();
  bool Take();
  void TakeOrMove();
  // The last read was large, and its lines go to the console alone, unchanged: MoveLines may move the next.
  bool MayMove() const;
  // Moves whole lines from pipe_ to the console without a copy. False: not possible; Take reads them.
  bool MoveLines();
  void OnMoved();
  void Pass(Chunk chunk);
  void OnSaved(const QueuedLog::Range& range);
  void End();
  void OnClosed();

  void Show(absl::string_view bytes);
  void AwaitRoom();
  void Resume();
  void CatchUp();
  void OnRead(int64_t wanted, const std::string& bytes);
  void OnShown();
  void GiveUp();

  void FinishLines();
  bool HoldsLine() const { return prefixer_ ? prefixer_->holds() : holder_.holds(); }
  // There are bytes to read, which may have the end of the line that is held back.
  bool HasUnread();
  void AwaitEndOfLine();

  boost::asio::posix::stream_descriptor pipe_;
  Sinks sinks_;
  std::function<void()> closed_;
  std::function<void()> shown_;
  const OutputSink::Writer writer_;
  std::optional<LinePrefixer> prefixer_;  // else:
  LineHolder holder_;
  bool flows_ = false;     // the last read was large
  bool moving_ = false;    // the console takes lines out of pipe_
  std::string moved_end_;  // with moving_: the last bytes of those lines
  bool saved_ = false;     // all that was read is in the files
  bool stalled_ = false;   // there is something to read, and nobody to take it
  bool awaiting_console_ = false;
  bool awaiting_disk_ = false;

  // What the console lacks: first what is in the file, or in memory where the file lacks it too; then what is
  // on its way to the file.
  std::deque<std::variant<QueuedLog::Range, std::shared_ptr<Chunk>>> lacking_;
  std::deque<std::shared_ptr<Chunk>> unsaved_;
  int in_memory_ = 0;       // of lacking_
  bool reading_ = false;    // the first of lacking_ is being read from the file
  int outdated_saves_ = 0;  // answers to come of what has left unsaved_
  int outdated_reads_ = 0;

  boost::asio::steady_timer hold_;  // runs as long as a line is held back
  bool holding_ = false;            // hold_ runs
  TimePoint held_since_ = {};       // with a prefix: since it last grew; without one: since it began
  Alive alive_;
};

}  // namespace ddprun
