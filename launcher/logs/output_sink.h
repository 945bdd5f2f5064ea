// The agent's console: one of its own two streams. Writing never blocks on a slow reader or file system.
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
#include "os/unique_fd.h"

namespace ddprun {

// Order:   what is written comes out in that order; what one Write gives is not mixed with another's. When a
//          writer has stopped in the middle of a line, others begin a new one.
// Errors:  the first one is given to `on_error`. A file is written as FileWriter does it, in a DiskThread of
//          its own; when a reader is gone, all output is dropped. Nobody waits.
// Threads: that of the io_context. SIGPIPE must be ignored.
class OutputSink {
 public:
  using OnError = std::function<void(const absl::Status&)>;
  // Who may stop in the middle of a line.
  using Writer = uint64_t;
  static constexpr Writer kLauncher = 0;

  // `fd`, borrowed until this returns, may be a terminal, pipe, socket or file of whatever other processes
  // share.
  //   name: for messages, such as "stderr".
  OutputSink(boost::asio::io_context& io, int fd, std::string name, OnError on_error);
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;
  ~OutputSink() { alive_.End(); }

  // For a writer that is not the launcher; each value is used once.
  Writer NewWriter() { return ++last_writer_; }
  // Takes everything, also when full.
  void Write(absl::string_view bytes, Writer writer = kLauncher);
  // The same of what `append` appends, without a copy.
  void Write(absl::FunctionRef<void(std::string&)> append, Writer writer = kLauncher);
  // The same of `first` and then `second`. Only what the reader does not take at once is copied.
  void Write(absl::string_view first, absl::string_view second, Writer writer);

  bool is_pipe() const { return is_pipe_ && fd_; }
  // All that was written is out.
  bool idle() const { return queue_.empty() && !move_ && !waiting_; }
  // `ready` is called once, from the io_context, when it is idle, in one order with the callers of WhenRoom:
  // those that call WhenRoom later are served later. Who does not wait may still write before that.
  void WhenIdle(std::function<void()> ready);
  // Whole lines may be moved here from a pipe: this is one, too, idle, and nobody has stopped in the middle
  // of a line.
  bool CanMove() const { return is_pipe() && idle() && !failed_ && !in_line_; }
  // Moves the first `bytes` of the pipe `from`, whole lines that are there, behind `first`, which is copied.
  // Other writers come after all of it. Afterwards the bytes are not in `from` any more, also when the
  // console's reader has closed its end. If another process reads `from`, the move ends when that is empty.
  // REQUIRES: CanMove().
  //   from: borrowed until the move is done.
  //   Returns: true when the move is done; false: `done` is called when it is.
  bool Move(absl::string_view first, int from, size_t bytes, std::function<void()> done);
  // Completes a Move that is not done: copies the rest, so that `from` may be closed. `done` is not called.
  void FinishMoveByCopy();

  // The reader is slow: whoever can wait shall call WhenRoom and write from there.
  bool full() const;
  // `ready` is called once, from the io_context, in the order of these calls and when it is not full.
  void WhenRoom(std::function<void()> ready);
  bool empty() const { return queue_.empty() && !move_ && (!disk_ || disk_->idle()); }
  // Calls `done` once when all that was written is out, from the io_context.
  void WhenEmpty(std::function<void()> done);
  // Bytes that the reader has taken so far.
  int64_t taken() const { return taken_; }
  int64_t MovedForTest() const { return moved_; }

 private:
  struct RoomWaiter {
    std::function<void()> ready;
    bool needs_idle;
  };
  // Comes between the first `at` bytes of queue_ and the others.
  struct PendingMove {
    int from;
    size_t left;
    size_t at;
    std::function<void()> done;
  };

  // To the end of `out`; on a new line where the last writer has left one.
  void Append(absl::FunctionRef<void(std::string&)> append, Writer writer, std::string& out);
  // The last byte of what `writer` has written.
  void NoteEnd(char last, Writer writer);
  // Bytes taken; -1 with errno.
  ssize_t Put(const iovec* pieces, size_t count);
  void Pump();
  // False: it cannot go on now.
  bool PumpQueue(size_t end);
  bool PumpMove();
  // Reads the rest of move_ from its pipe.
  std::string TakeRestOfMove();
  void AwaitReader();
  void Fail();
  void WriteAside(std::string bytes);
  void CallWaiters();
  bool MayServe() const;
  void ServeRoomWaiters();

  boost::asio::io_context& io_;
  const std::string name_;
  const OnError on_error_;
  std::shared_ptr<FileWriter> file_;  // of what takes no O_NONBLOCK; with the jobs of disk_, if there are any
  std::optional<DiskThread> disk_;    // of a file_ that may block
  UniqueFd fd_;                       // without file_
  bool is_socket_ = false;
  bool is_pipe_ = false;
  boost::asio::posix::stream_descriptor ready_;  // watches fd_
  bool failed_ = false;
  bool waiting_ = false;  // for fd_ to take more
  std::string queue_;
  size_t sent_ = 0;  // of queue_
  std::optional<PendingMove> move_;
  std::vector<std::string> spares_;  // memory of what disk_ has written
  int64_t taken_ = 0;
  int64_t moved_ = 0;  // of taken_
  Writer last_writer_ = kLauncher;
  std::optional<Writer> in_line_;  // who has stopped in the middle of a line
  std::deque<RoomWaiter> room_waiters_;
  bool serving_ = false;  // ServeRoomWaiters will come
  std::vector<std::function<void()>> empty_waiters_;
  Alive alive_;
};

}  // namespace ddprun
