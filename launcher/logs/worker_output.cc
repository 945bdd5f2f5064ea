#include "launcher/logs/worker_output.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

WorkerOutput::WorkerOutput(Console& console, const Plan& plan) : console_(console), limit_(console.io()) {
  Open(out_, plan,
       {.redirect = plan.redirects.out,
        .tee = plan.tee.out,
        .shown = plan.shown,
        .path = plan.files.stdout_log,
        .console_fd = console.stdout_fd(),
        .console = &console.out(),
        .filtered = plan.filtered_stdout,
        .tail = nullptr,
        .as_it_is = true});
  Open(err_, plan,
       {.redirect = plan.redirects.err,
        .tee = plan.tee.err,
        .shown = plan.shown,
        .path = plan.files.stderr_log,
        .console_fd = console.stderr_fd(),
        .console = &console.err(),
        .filtered = plan.filtered_stderr,
        .tail = &tail_,
        .as_it_is = console.stderr_is_terminal()});
  sees_stderr_ = err_.passed != nullptr;
}

void WorkerOutput::Open(Stream& stream, const Plan& plan, const Wish& wish) {
  const bool tee = wish.tee && wish.shown;
  const bool to_file = (wish.redirect || wish.tee) && !wish.path.empty();
  if (to_file && !tee && plan.max_log_bytes == 0 && OpenFileOfItsOwn(stream, wish.path)) return;
  WorkerStream::Ways ways;
  if (to_file && (tee || plan.max_log_bytes > 0)) {
    auto file = LogFile::Open(wish.path, plan.max_log_bytes, console_.warn());
    if (file.ok()) {
      ways.file = *std::move(file);
    } else {
      console_.Warn(file.status());
    }
  }
  if (wish.shown && (tee || ways.file == nullptr)) ways.console = wish.console;
  if (tee) {
    ways.prefix = plan.prefix;
    if (wish.filtered != nullptr) ways.filtered.emplace(wish.filtered, plan.prefix);
  }
  ways.tail = wish.tail;
  const bool console_alone = ways.console != nullptr && ways.file == nullptr && !tee;
  const bool nowhere = ways.console == nullptr && ways.file == nullptr && ways.tail == nullptr;
  if (!nowhere && !(console_alone && wish.as_it_is) && OpenPipe(stream, plan, std::move(ways))) return;
  if (wish.shown) {
    stream.child_fd = wish.console_fd;
  } else {
    OpenNullDevice(stream);
  }
}

bool WorkerOutput::OpenFileOfItsOwn(Stream& stream, const std::string& path) {
  stream.child_end.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!stream.child_end) {
    console_.Warn(absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path)));
    return false;
  }
  stream.child_fd = stream.child_end.get();
  stream.path = path;
  return true;
}

bool WorkerOutput::OpenPipe(Stream& stream, const Plan& plan, WorkerStream::Ways ways) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    console_.Warn(absl::ErrnoToStatus(errno, "cannot open a pipe for a worker's output"));
    return false;
  }
  UniqueFd ours(ends[0]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  if (plan.pipe_bytes > 0) fcntl(ours.get(), F_SETPIPE_SZ, plan.pipe_bytes);  // if it cannot, so be it
  stream.child_end.Reset(ends[1]);
  stream.child_fd = ends[1];
  stream.passed = std::make_unique<WorkerStream>(console_.io(), std::move(ours), std::move(ways),
                                                 [this] { CheckDrained(); });
  return true;
}

void WorkerOutput::OpenNullDevice(Stream& stream) {
  stream.child_end.Reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
  stream.child_fd = stream.child_end.get();
}

void WorkerOutput::CloseChildEnds() {
  out_.child_end.Reset();
  err_.child_end.Reset();
  out_.child_fd = err_.child_fd = -1;
}

void WorkerOutput::Drain(Duration limit, std::function<void()> done) {
  drained_ = std::move(done);
  CloseChildEnds();
  limit_.expires_after(limit);
  limit_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (error) return;
    for (const Stream* stream : {&out_, &err_}) {
      if (stream->passed != nullptr) stream->passed->Close();
    }
    CheckDrained();
  }));
  CheckDrained();
}

void WorkerOutput::CheckDrained() {
  if (!drained_) return;
  for (const Stream* stream : {&out_, &err_}) {
    if (stream->passed != nullptr && !stream->passed->closed()) return;
  }
  limit_.cancel();
  for (Stream* stream : {&out_, &err_}) {
    WarnIfDiskIsFull(*stream);
    if (stream->passed != nullptr && stream->passed->behind()) {
      console_.FinishShowing(std::move(stream->passed));
    }
  }
  boost::asio::post(console_.io(), alive_.Guard(std::exchange(drained_, nullptr)));
}

void WorkerOutput::WarnIfDiskIsFull(const Stream& stream) {
  struct statvfs info;
  if (stream.path.empty() || statvfs(stream.path.c_str(), &info) != 0) return;
  const auto room = geteuid() == 0 ? info.f_bfree : info.f_bavail;
  if (info.f_blocks == 0 || room > 0) return;  // no blocks: it does not say
  console_.Warn(absl::ErrnoToStatus(
      ENOSPC, absl::StrCat(stream.path, " may lack some of what the worker wrote: its disk is full")));
}

std::optional<std::string> WorkerOutput::StderrTail() const {
  if (sees_stderr_) return tail_.Get();
  if (!err_.path.empty()) return ReadFileTail(err_.path);
  return std::nullopt;
}

}  // namespace ddprun
