#include "launcher/logs/console.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace ddprun {
namespace {

bool IsDevice(int fd) {
  struct stat info;
  return fstat(fd, &info) != 0 || S_ISCHR(info.st_mode);
}

bool AreOne(int a, int b) {
  struct stat of_a, of_b;
  return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && !S_ISCHR(of_a.st_mode) &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

Console::Console(boost::asio::io_context& io, std::function<void(const absl::Status&)> warn, int stdout_fd,
                 int stderr_fd)
    : io_(io),
      warn_(std::move(warn)),
      stdout_fd_(stdout_fd),
      stderr_fd_(stderr_fd),
      stdout_is_device_(IsDevice(stdout_fd)),
      stderr_is_terminal_(isatty(stderr_fd) != 0),
      err_(io, stderr_fd, AreOne(stdout_fd, stderr_fd) ? "stdout and stderr" : "stderr", warn_),
      readers_(io) {
  if (!AreOne(stdout_fd, stderr_fd)) out_.emplace(io, stdout_fd, "stdout", warn_);
}

void Console::FinishShowing(std::unique_ptr<WorkerStream> stream) {
  WorkerStream* const shown = stream.get();
  unfinished_.push_back(std::move(stream));
  // The stream calls this callback from one of its methods, so post the destruction of the stream.
  shown->WhenShown([this, shown] {
    boost::asio::post(io_, alive_.Guard([this, shown] {
      const auto is_it = [shown](const auto& stream) { return stream.get() == shown; };
      unfinished_.erase(std::find_if(unfinished_.begin(), unfinished_.end(), is_it));
      CheckFlushed();
    }));
  });
}

void Console::Flush(Duration limit, std::function<void()> done) {
  flushed_ = std::move(done);
  reader_limit_ = limit;
  WatchReaders();
  CheckFlushed();
}

void Console::CheckFlushed() {
  if (!flushed_ || !unfinished_.empty()) return;
  for (OutputSink* sink : {&out(), &err_}) {
    if (!sink->empty()) return sink->WhenEmpty(alive_.Guard([this] { CheckFlushed(); }));
  }
  readers_.cancel();
  boost::asio::post(io_, alive_.Guard(std::exchange(flushed_, nullptr)));
}

void Console::WatchReaders() {
  readers_.expires_after(reader_limit_);
  readers_.async_wait(alive_.Guard([this, before = taken()](const boost::system::error_code& error) {
    if (error || !flushed_) return;
    if (taken() > before) return WatchReaders();
    if (out_ && !out_->empty()) {
      warn_(absl::DeadlineExceededError("stdout is blocked: the last output of workers is lost"));
    }
    std::exchange(flushed_, nullptr)();
  }));
}

}  // namespace ddprun
