// The agent's stdout and stderr, and the workers' output that has not yet been written to them.
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

// Must outlive all WorkerOutput objects.
//   Threads: the thread that runs the io_context.
class Console {
 public:
  // `warn` is called once for each problem with output, such as a full disk or a closed pipe. These problems
  // have no other effect on the job. `stdout_fd` and `stderr_fd` are borrowed and must outlive this object.
  Console(boost::asio::io_context& io, std::function<void(const absl::Status&)> warn, int stdout_fd = 1,
          int stderr_fd = 2);
  ~Console() { alive_.End(); }

  boost::asio::io_context& io() { return io_; }
  void Warn(const absl::Status& problem) { warn_(problem); }
  const std::function<void(const absl::Status&)>& warn() const { return warn_; }
  int stdout_fd() const { return stdout_fd_; }
  int stderr_fd() const { return stderr_fd_; }
  // True if stdout is a terminal or another device, such as /dev/null. Workers may then write to stdout
  // directly, although lines of different workers may interleave.
  bool stdout_is_device() const { return stdout_is_device_; }
  bool stderr_is_terminal() const { return stderr_is_terminal_; }
  // True if stdout and stderr are the same file, pipe or socket, for example with `> log 2>&1`. In this case,
  // out() and err() return the same sink.
  bool is_one() const { return !out_; }
  OutputSink& out() { return out_ ? *out_ : err_; }
  OutputSink& err() { return err_; }

  // Takes ownership of a stream whose worker has ended, and destroys the stream after all its output has been
  // passed to this console.
  void FinishShowing(std::unique_ptr<WorkerStream> stream);

  // Calls `done` once, on the io_context, when all output of workers has been written to stdout and stderr,
  // or when neither of them has accepted any bytes for `limit`. At most one Flush may be pending.
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
  std::optional<OutputSink> out_;  // nullopt if stdout and stderr are the same; err_ is then used for both
  OutputSink err_;
  std::vector<std::unique_ptr<WorkerStream>> unfinished_;
  std::function<void()> flushed_;
  Duration reader_limit_ = {};
  boost::asio::steady_timer readers_;
  Alive alive_;
};

}  // namespace ddprun
