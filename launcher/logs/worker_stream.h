// Passes one stream of one worker through the agent. The file receives the bytes as they arrive. The console
// receives whole lines.
//
// A worker does not wait for the console's reader while the file has all output of the stream. Output for
// which the console has no room is later read from the file. If no file is configured, the disk is full, or
// the file has reached its size limit, the worker waits for the reader as if it wrote to the console
// directly. If the disk stalls, the worker waits when the DiskThread is full.
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
#include "os/descriptor.h"

namespace ddprun {

// Lines on the console are whole, except that a line that does not end within kHoldLimit is shown incomplete.
// With a prefix, the incomplete part is shown as one line, and the rest of the line is shown as another.
// Without a prefix, the rest continues the line, unless another writer has written to the console in the
// meantime.
//   Order:   the file and the console each receive the output in the order of the stream.
//   Threads: the thread that runs the io_context.
class WorkerStream {
 public:
  static constexpr Duration kHoldLimit = seconds(1);

  // Destinations of the stream; each is optional. Pointers are borrowed.
  struct Sinks {
    std::unique_ptr<QueuedLog> file;
    OutputSink* console = nullptr;
    std::optional<std::string> prefix;  // prefix of lines on the console; if nullopt, lines are unchanged
    std::optional<FilteredStream> filtered;
    DiskThread* disk = nullptr;  // the thread of `file` and `filtered`; null if neither is set
    OutputTail* tail = nullptr;  // not used after the pipe is closed
  };

  // `pipe` is the read end of the worker's pipe and is non-blocking. `closed` is called once, on the
  // io_context, when the end of the stream has been reached and all sinks except the console have received
  // the whole stream.
  WorkerStream(boost::asio::io_context& io, UniqueFd pipe, Sinks sinks, std::function<void()> closed);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream();

  // True if the end of the stream has been reached and the file has the whole stream.
  bool closed() const { return !pipe_.is_open() && saved_; }
  // Reads the bytes that are in the pipe, then closes the pipe. Afterwards, `closed` is not called.
  void Close();

  // True if some output has not yet been passed to the console.
  bool behind() const { return !lacking_.empty() || !unsaved_.empty(); }
  // Calls `shown` once, from a method of this object, when behind() becomes false.
  //   REQUIRES: behind(), and the pipe is closed.
  void WhenShown(std::function<void()> shown) { shown_ = std::move(shown); }

 private:
  bool ConsoleHasRoom() const { return sinks_.console == nullptr || (!behind() && !sinks_.console->full()); }
  bool DiskHasRoom() const { return sinks_.disk == nullptr || !sinks_.disk->full(); }
  bool CanTake() const;
  void AwaitBytes();
  void OnReadable();
  bool Take();
  void TakeOrMove();
  // True if MoveLines may be tried. This requires that the last read was large, that the lines have no
  // prefix, and that the only destination is a console that is a pipe.
  bool MayMove() const;
  // Moves whole lines from pipe_ to the console without a copy. Returns false if that is not possible.
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
  // Drops the output that has not been passed to the console, and writes a line to the console that states
  // how many bytes were dropped.
  void DropBacklog();

  void FinishLines();
  bool HoldsLine() const { return prefixer_ ? prefixer_->holds() : holder_.holds(); }
  // True if the pipe has unread bytes. They may complete the line that is held back.
  bool HasUnread();
  void AwaitEndOfLine();

  boost::asio::posix::stream_descriptor pipe_;
  Sinks sinks_;
  std::function<void()> closed_;
  std::function<void()> shown_;
  const OutputSink::Writer writer_;
  std::optional<LinePrefixer> prefixer_;
  LineHolder holder_;      // used if prefixer_ is not set
  bool flows_ = false;     // the last read was large
  bool moving_ = false;    // the console is moving lines out of pipe_
  std::string moved_end_;  // the last bytes of the lines that are being moved; valid if moving_ is true
  bool saved_ = false;     // the stream has ended, and the files have the whole stream
  bool stalled_ = false;   // pipe_ is readable, but the sinks have no room
  bool awaiting_console_ = false;
  bool awaiting_disk_ = false;

  // Output that has not been passed to the console, in order: first lacking_, then unsaved_. An element of
  // lacking_ is a range of the file, or a chunk in memory if the file does not have all of its bytes. The
  // chunks in unsaved_ are being written to the file.
  std::deque<std::variant<QueuedLog::Range, std::shared_ptr<Chunk>>> lacking_;
  std::deque<std::shared_ptr<Chunk>> unsaved_;
  int in_memory_ = 0;       // number of chunks in lacking_
  bool reading_ = false;    // the first element of lacking_ is being read from the file
  int outdated_saves_ = 0;  // number of pending callbacks for writes of chunks that have left unsaved_
  int outdated_reads_ = 0;  // number of pending callbacks for reads that are no longer needed

  boost::asio::steady_timer hold_;  // pending while a line is held back
  bool holding_ = false;            // hold_ is pending
  TimePoint held_since_ = {};       // when the held line last grew (with a prefix) or began (without one)
  Alive alive_;
};

}  // namespace ddprun
