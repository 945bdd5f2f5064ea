// Where output goes: the agent's console or a file. Writing never blocks on a slow reader.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/process/alive.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

// Order:   what is written comes out in that order; what one Write gives is not mixed with another's.
// Errors:  the first one is given to `on_error`. When a disk is full, what does not fit is dropped, and once
//          there is room again the file goes on with a line that says how much is missing. After any other
//          (the reader is gone) all output is dropped. Nobody waits.
// Threads: that of the io_context. SIGPIPE must be ignored.
class OutputSink {
 public:
  using OnError = std::function<void(const absl::Status&)>;

  // `fd`, borrowed until this returns, may be a terminal, pipe, socket or file of whatever other processes
  // share.
  //   name: for messages, such as "stderr".
  static std::unique_ptr<OutputSink> ForConsole(boost::asio::io_context& io, int fd, std::string name,
                                                OnError on_error);
  // A regular file, written at once; truncated if it exists. Errors: of open, with the path.
  static absl::StatusOr<std::unique_ptr<OutputSink>> ForFile(boost::asio::io_context& io,
                                                             const std::string& path, OnError on_error);

  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;
  ~OutputSink() { alive_.End(); }

  // Takes everything, also when full.
  void Write(absl::string_view bytes);

  // The reader is slow: whoever can wait shall call WhenRoom and write from there.
  bool full() const;
  // `ready` is called once, from the io_context.
  void WhenRoom(std::function<void()> ready);
  // Calls `done` once when all that was written is out, from the io_context.
  void WhenEmpty(std::function<void()> done);

 private:
  enum class Kind { kBlocking, kNonBlocking, kSocket };

  OutputSink(boost::asio::io_context& io, UniqueFd fd, Kind kind, std::string name, OnError on_error);
  // Bytes taken; -1 with errno.
  ssize_t Put(absl::string_view bytes);
  void Pump();
  void Fail(int error);
  // False while there is no room even for the line about what is missing.
  bool WriteGapLine();
  void CallWaiters();

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor ready_;  // watches fd_, unless kBlocking
  const Kind kind_;
  UniqueFd fd_;
  const std::string name_;
  const OnError on_error_;
  bool failed_ = false;
  bool told_ = false;     // on_error_ was called
  int64_t missing_ = 0;   // bytes dropped since the disk is full
  bool waiting_ = false;  // for fd_ to take more
  std::string queue_;
  size_t sent_ = 0;  // of queue_
  std::vector<std::function<void()>> room_waiters_;
  std::vector<std::function<void()>> empty_waiters_;
  Alive alive_;
};

}  // namespace ddprun
