// The agent's own stdout and stderr, and what workers have written that is still on its way to them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/alive.h"
#include "base/time.h"
#include "launcher/logs/output_sink.h"
#include "launcher/logs/worker_stream.h"

namespace ddprun {

// Outlives the workers' output.
//   Threads: that of the io_context.
class Console {
 public:
  // `warn` gets each problem with output once; nothing else happens because of it. The descriptors are
  // borrowed for its lifetime.
  Console(boost::asio::io_context& io, std::function<void(const absl::Status&)> warn, int stdout_fd = 1,
          int stderr_fd = 2);
  ~Console() { alive_.End(); }

  boost::asio::io_context& io() { return io_; }
  void Warn(const absl::Status& problem) { warn_(problem); }
  const std::function<void(const absl::Status&)>& warn() const { return warn_; }
  int stdout_fd() const { return stdout_fd_; }
  int stderr_fd() const { return stderr_fd_; }
  // Terminals and devices such as /dev/null: nobody cares for whole lines there, or the terminal does.
  bool stdout_is_device() const { return stdout_is_device_; }
  bool stderr_is_terminal() const { return stderr_is_terminal_; }
  // Both are the same file, pipe or socket, as after `> log 2>&1`: out() and err() are one.
  bool is_one() const { return !out_; }
  OutputSink& out() { return out_ ? *out_ : err_; }
  OutputSink& err() { return err_; }

  // Keeps a stream whose worker has ended until all of it is shown.
  void FinishShowing(std::unique_ptr<WorkerStream> stream);

  // `done` is called once, from the io_context: all that workers wrote is out, or the readers have taken
  // nothing for as long as `limit`. One at a time.
  void Flush(Duration limit, std::function<void()> done);

 private:
  void CheckFlushed();
  void WatchReaders();
  int64_t taken() const { return (out_ ? out_->taken() : 0) + err_.taken(); }

  boost::asio::io_context& io_;
  const std::function<void(const absl::Status&)> warn_;
  const int stdout_fd_;
  const int stderr_fd_;
  const bool stdout_is_device_;
  const bool stderr_is_terminal_;
  std::optional<OutputSink> out_;  // none: it is err_
  OutputSink err_;
  std::vector<std::unique_ptr<WorkerStream>> unfinished_;
  std::function<void()> flushed_;
  Duration reader_limit_ = {};
  boost::asio::steady_timer readers_;
  Alive alive_;
};

}  // namespace ddprun
