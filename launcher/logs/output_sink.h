// The agent's console: one of its own two streams. Writing never blocks on a slow reader.
#pragma once

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
#include "absl/strings/string_view.h"
#include "launcher/logs/file_writer.h"
#include "launcher/process/alive.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

// Order:   what is written comes out in that order; what one Write gives is not mixed with another's.
// Errors:  the first one is given to `on_error`. A file is written as FileWriter does it; when a reader is
//          gone, all output is dropped. Nobody waits.
// Threads: that of the io_context. SIGPIPE must be ignored.
class OutputSink {
 public:
  // `fd`, borrowed until this returns, may be a terminal, pipe, socket or file of whatever other processes
  // share.
  //   name: for messages, such as "stderr".
  OutputSink(boost::asio::io_context& io, int fd, std::string name, FileWriter::OnError on_error);
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;
  ~OutputSink() { alive_.End(); }

  // Takes everything, also when full.
  void Write(absl::string_view bytes);
  // The same of what `append` appends, without a copy.
  void Write(absl::FunctionRef<void(std::string&)> append);

  // The reader is slow: whoever can wait shall call WhenRoom and write from there.
  bool full() const;
  // `ready` is called once, from the io_context, in the order of these calls and when it is not full.
  void WhenRoom(std::function<void()> ready);
  bool empty() const { return queue_.empty(); }
  // Calls `done` once when all that was written is out, from the io_context.
  void WhenEmpty(std::function<void()> done);
  // Bytes that the reader has taken so far.
  int64_t taken() const { return taken_; }

 private:
  // Bytes taken; -1 with errno.
  ssize_t Put(absl::string_view bytes);
  void Pump();
  void CallWaiters();
  void ServeRoomWaiters();

  boost::asio::io_context& io_;
  const std::string name_;
  const FileWriter::OnError on_error_;
  std::optional<FileWriter> file_;  // of what never makes wait; then the next five are not used
  UniqueFd fd_;
  bool is_socket_ = false;
  boost::asio::posix::stream_descriptor ready_;  // watches fd_
  bool failed_ = false;
  bool waiting_ = false;  // for fd_ to take more
  std::string queue_;
  size_t sent_ = 0;  // of queue_
  int64_t taken_ = 0;
  std::deque<std::function<void()>> room_waiters_;
  bool serving_ = false;  // ServeRoomWaiters will come
  std::vector<std::function<void()>> empty_waiters_;
  Alive alive_;
};

}  // namespace ddprun
