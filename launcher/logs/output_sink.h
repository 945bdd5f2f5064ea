// One of the agent's two output streams. Writing never blocks on a slow reader or file system.
#pragma once

#include <sys/uio.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/alive.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/file_writer.h"
#include "os/descriptor.h"

namespace ddprun {

//   Order:   output is written in the order of the calls, and the bytes of one Write are contiguous. If a
//            writer has stopped mid-line, output of another writer begins on a new line.
//   Errors:  `on_error` receives the first error. Files are written by a FileWriter in a DiskThread. After
//            the reader of a pipe or socket has closed its end, all output is dropped and no caller waits.
//   Threads: the thread that runs the io_context. SIGPIPE must be ignored.
class OutputSink {
 public:
  using OnError = std::function<void(const absl::Status&)>;
  // Identifies a writer. A writer does not continue the incomplete line of another writer.
  using Writer = uint64_t;
  static constexpr Writer kLauncher = 0;

  //   fd:   a terminal, pipe, socket or file, possibly shared with other processes. Borrowed during the call.
  //   name: identifies the stream in messages, for example "stderr".
  OutputSink(boost::asio::io_context& io, int fd, std::string name, OnError on_error);
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;
  ~OutputSink() { alive_.End(); }

  // Returns a new id for a writer other than the launcher.
  Writer NewWriter() { return ++last_writer_; }
  // Accepts any number of bytes, even if full().
  void Write(absl::string_view bytes, Writer writer = kLauncher);
  // Writes the bytes that `append` appends to its argument, without copying them.
  void Write(absl::FunctionRef<void(std::string&)> append, Writer writer = kLauncher);
  // Writes `first`, then `second`. Copies only bytes that cannot be written immediately.
  void Write(absl::string_view first, absl::string_view second, Writer writer);

  bool is_pipe() const { return is_pipe_ && fd_; }
  // True if all output is written and the stream is not blocked.
  bool idle() const { return queue_.empty() && !move_ && !waiting_; }
  // Calls `ready` once, on the io_context, as soon as idle() is true. Callbacks of WhenIdle and WhenRoom
  // share one queue and run in the order of the calls. Writers that do not wait may write before a callback
  // runs.
  void WhenIdle(std::function<void()> ready);
  // True if whole lines can be moved from another pipe to this stream: the stream is a pipe, is idle, has not
  // failed, and is at the beginning of a line.
  bool CanMove() const { return is_pipe() && idle() && !failed_ && !in_line_; }
  // Writes a copy of `first`, then moves the first `bytes` bytes of the pipe `from` to this stream. These
  // bytes must already be in the pipe and must consist of whole lines. Later output of other writers follows
  // them. After the move, the bytes are no longer in `from`, even if the reader of this stream has closed its
  // end. If another process reads from `from`, the move ends when `from` is empty.
  //   REQUIRES: CanMove().
  //   from:     borrowed until the move is complete.
  //   Returns:  true if the move is complete. Otherwise returns false, and calls `done` on completion.
  bool Move(absl::string_view first, int from, size_t bytes, std::function<void()> done);
  // Completes a pending Move by reading the remaining bytes into memory. Afterwards, `from` may be closed.
  // `done` is not called.
  //   REQUIRES: a Move is pending.
  void FinishMoveByCopy();

  // True if much output is pending because the reader or the disk is slow. Callers that can wait should then
  // call WhenRoom and write in its callback.
  bool full() const;
  // Calls `ready` once, on the io_context, as soon as full() is false. Callbacks run in the order of the
  // calls.
  void WhenRoom(std::function<void()> ready);
  bool empty() const { return queue_.empty() && !move_ && (!disk_ || disk_->idle()); }
  // Calls `done` once, on the io_context, as soon as empty() is true.
  void WhenEmpty(std::function<void()> done);
  // The number of bytes that the stream has accepted so far.
  int64_t taken() const { return taken_; }
  int64_t MovedForTest() const { return moved_; }

 private:
  struct RoomWaiter {
    std::function<void()> ready;
    bool needs_idle;
  };
  // A move that follows the first `at` bytes of queue_ and precedes the rest.
  struct PendingMove {
    int from;
    size_t left;
    size_t at;
    std::function<void()> done;
  };

  // Calls `append` with `out`. Inserts a newline before the new bytes if another writer has stopped mid-line.
  void Append(absl::FunctionRef<void(std::string&)> append, Writer writer, std::string& out);
  // Records the last byte that `writer` has written.
  void NoteEnd(char last, Writer writer);
  // Returns the number of bytes written. On error, returns -1 and sets errno.
  ssize_t Put(const iovec* pieces, size_t count);
  void Pump();
  // PumpQueue writes queue_ up to offset `end`. PumpQueue and PumpMove return false if they must wait for the
  // reader.
  bool PumpQueue(size_t end);
  bool PumpMove();
  // Reads the bytes that move_ has not yet moved, and returns them.
  std::string TakeRestOfMove();
  void AwaitReader();
  void Fail();
  void WriteOnDisk(std::string bytes);
  void CallWaiters();
  bool MayServe() const;
  void ServeRoomWaiters();

  boost::asio::io_context& io_;
  const std::string name_;
  const OnError on_error_;
  std::shared_ptr<FileWriter> file_;  // set if the stream has no non-blocking mode; shared with jobs of disk_
  std::optional<DiskThread> disk_;    // set if writes to file_ may block
  UniqueFd fd_;                       // set if file_ is null; writes to it never block
  bool is_socket_ = false;
  bool is_pipe_ = false;
  boost::asio::posix::stream_descriptor ready_;  // duplicate of fd_; used to wait until fd_ is writable
  bool failed_ = false;
  bool waiting_ = false;  // waiting for fd_ to become writable
  std::string queue_;
  size_t sent_ = 0;  // number of bytes in queue_ that have been written
  std::optional<PendingMove> move_;
  std::vector<std::string> spares_;  // buffers of finished jobs, kept for reuse
  int64_t taken_ = 0;
  int64_t moved_ = 0;  // number of bytes moved by Move; included in taken_
  Writer last_writer_ = kLauncher;
  std::optional<Writer> in_line_;  // the writer that has stopped mid-line, if any
  std::deque<RoomWaiter> room_waiters_;
  bool serving_ = false;  // a call to ServeRoomWaiters is posted or running
  std::vector<std::function<void()>> empty_waiters_;
  Alive alive_;
};

}  // namespace ddprun
