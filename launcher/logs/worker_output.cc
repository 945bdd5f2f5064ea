#include "launcher/logs/worker_output.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr char kNullDevice[] = "/dev/null";
constexpr size_t kReadBytes = 64 << 10;
// At the end of a drain, what a worker can have left in its pipe, and more.
constexpr int kLastReads = 32;

}  // namespace

Console::Console(boost::asio::io_context& io, std::function<void(const absl::Status&)> warn, int stdout_fd,
                 int stderr_fd)
    : io_(io),
      warn_(std::move(warn)),
      stdout_fd_(stdout_fd),
      stderr_fd_(stderr_fd),
      stderr_is_terminal_(isatty(stderr_fd) != 0),
      out_(OutputSink::ForConsole(io, stdout_fd, "stdout", warn_)),
      err_(OutputSink::ForConsole(io, stderr_fd, "stderr", warn_)) {}

void Console::Flush(Duration limit, std::function<void()> done) {
  struct Wait {
    explicit Wait(boost::asio::io_context& io) : timer(io) {}
    boost::asio::steady_timer timer;
    int left = 2;
    std::function<void()> done;
  };
  // Shared by the two streams and the timer: whoever comes last frees it.
  auto wait = std::make_shared<Wait>(io_);
  wait->done = std::move(done);
  const auto finish = [wait] {
    wait->timer.cancel();
    if (auto call = std::exchange(wait->done, nullptr)) call();
  };
  const auto one_empty = [wait, finish] {
    if (--wait->left == 0) finish();
  };
  wait->timer.expires_after(limit);
  wait->timer.async_wait(alive_.Guard([finish](const boost::system::error_code& error) {
    if (!error) finish();
  }));
  out_->WhenEmpty(alive_.Guard(one_empty));
  err_->WhenEmpty(alive_.Guard(one_empty));
}

WorkerOutput::WorkerOutput(Console& console, const Plan& plan)
    : console_(console), out_(console.io_), err_(console.io_), limit_(console.io_) {
  err_.tail.emplace();
  if (plan.tee.out) {
    Tee(out_, plan.files.stdout_log, *console.out_, console.stdout_fd_, plan.prefix);
  } else if (plan.redirects.out && !plan.files.stdout_log.empty()) {
    Redirect(out_, plan.files.stdout_log, console.stdout_fd_);
  } else {
    out_.child_fd = console.stdout_fd_;
  }
  if (plan.tee.err) {
    Tee(err_, plan.files.stderr_log, *console.err_, console.stderr_fd_, plan.prefix);
  } else if (plan.redirects.err && !plan.files.stderr_log.empty()) {
    Redirect(err_, plan.files.stderr_log, console.stderr_fd_);
  } else if (console.stderr_is_terminal_ || !OpenPipe(err_)) {
    err_.child_fd = console.stderr_fd_;
    err_.tail.reset();
  } else {
    err_.console = console.err_.get();
  }
}

WorkerOutput::~WorkerOutput() { alive_.End(); }

void WorkerOutput::Redirect(Stream& stream, const std::string& path, int console_fd) {
  stream.child_end.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  stream.child_fd = stream.child_end ? stream.child_end.get() : console_fd;
  stream.tail.reset();
  if (stream.child_end) {
    if (path != kNullDevice) stream.path = path;
  } else {
    console_.warn_(
        absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path, ", so it goes to the console")));
  }
}

bool WorkerOutput::OpenPipe(Stream& stream) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    console_.warn_(absl::ErrnoToStatus(errno, "cannot open a pipe for a worker's output"));
    return false;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  stream.pipe.assign(ends[0]);
  stream.child_end.Reset(ends[1]);
  stream.child_fd = ends[1];
  WaitForBytes(stream);
  return true;
}

void WorkerOutput::Tee(Stream& stream, const std::string& path, OutputSink& sink, int console_fd,
                       const std::string& prefix) {
  if (!OpenPipe(stream)) {
    stream.child_fd = console_fd;
    stream.tail.reset();
    return;
  }
  stream.console = &sink;
  stream.prefixer.emplace(prefix);
  if (path.empty() || path == kNullDevice) return;
  auto file = OutputSink::ForFile(console_.io_, path, console_.warn_);
  if (file.ok()) {
    stream.file = *std::move(file);
  } else {
    console_.warn_(file.status());
  }
}

void WorkerOutput::CloseChildEnds() {
  out_.child_end.Reset();
  err_.child_end.Reset();
  out_.child_fd = err_.child_fd = -1;
}

void WorkerOutput::WaitForBytes(Stream& stream) {
  stream.pipe.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         alive_.Guard([this, &stream](const boost::system::error_code& error) {
                           if (!error) OnReadable(stream);
                         }));
}

void WorkerOutput::OnReadable(Stream& stream) {
  if (!stream.pipe.is_open()) return;
  if (stream.console->full()) {
    // The worker waits with us, as it would if it wrote to the console itself.
    return stream.console->WhenRoom(alive_.Guard([this, &stream] { OnReadable(stream); }));
  }
  if (PassOn(stream)) return WaitForBytes(stream);
  Close(stream);
  CheckDrained();
}

// Reads once. False at the end of the stream.
bool WorkerOutput::PassOn(Stream& stream) {
  char buffer[kReadBytes];
  const ssize_t n = read(stream.pipe.native_handle(), buffer, sizeof buffer);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  const absl::string_view bytes(buffer, static_cast<size_t>(n));
  if (stream.file != nullptr) stream.file->Write(bytes);
  if (stream.tail) stream.tail->Append(bytes);
  if (stream.prefixer) {
    stream.console->Write(stream.prefixer->Feed(bytes));
  } else {
    stream.console->Write(bytes);
  }
  return true;
}

void WorkerOutput::Close(Stream& stream) {
  if (!stream.pipe.is_open()) return;
  boost::system::error_code ignored;
  stream.pipe.close(ignored);
  if (stream.prefixer) stream.console->Write(stream.prefixer->Finish());
  stream.file.reset();
}

void WorkerOutput::Drain(Duration limit, std::function<void()> done) {
  drained_ = std::move(done);
  CloseChildEnds();
  limit_.expires_after(limit);
  limit_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (error) return;
    for (Stream* stream : {&out_, &err_}) {
      if (!stream->pipe.is_open()) continue;
      // What is there already, whether the console has room or not.
      for (int i = 0; i < kLastReads && PassOn(*stream); ++i) {
      }
      Close(*stream);
    }
    CheckDrained();
  }));
  CheckDrained();
}

void WorkerOutput::CheckDrained() {
  if (!drained_ || out_.pipe.is_open() || err_.pipe.is_open()) return;
  limit_.cancel();
  for (const Stream* stream : {&out_, &err_}) WarnIfDiskIsFull(*stream);
  boost::asio::post(console_.io_, alive_.Guard(std::exchange(drained_, nullptr)));
}

void WorkerOutput::WarnIfDiskIsFull(const Stream& stream) {
  struct statvfs info;
  if (stream.path.empty() || statvfs(stream.path.c_str(), &info) != 0) return;
  const auto room = geteuid() == 0 ? info.f_bfree : info.f_bavail;
  if (info.f_blocks == 0 || room > 0) return;  // no blocks: it does not say
  console_.warn_(absl::ErrnoToStatus(
      ENOSPC, absl::StrCat(stream.path, " may lack some of what the worker wrote: its disk is full")));
}

std::optional<std::string> WorkerOutput::StderrTail() const {
  if (err_.tail) return err_.tail->Get();
  if (!err_.path.empty()) return ReadFileTail(err_.path);
  return std::nullopt;
}

}  // namespace ddprun
