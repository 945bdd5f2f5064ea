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

WorkerOutput::StreamFile OpenFile(const WorkerOutput::Plan& plan, bool redirect, bool tee,
                                  const std::string& path) {
  WorkerOutput::StreamFile file;
  if (!(redirect || tee) || path.empty()) return file;
  if (!(tee && plan.shown) && plan.max_log_bytes == 0) {
    file.of_worker.Reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.of_worker) file.problem = absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    return file;
  }
  auto log = LogFile::Open(path, plan.max_log_bytes);
  if (log.ok()) {
    file.of_us = *std::move(log);
  } else {
    file.problem = log.status();
  }
  return file;
}

// Returns an error if the disk of `path` is full. A worker that writes to the file directly gets ENOSPC, but
// may not report the error to the user.
absl::Status CheckDiskSpace(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) return absl::OkStatus();
  const auto room = geteuid() == 0 ? info.f_bfree : info.f_bavail;
  // On file systems that do not report their size, f_blocks is 0.
  if (info.f_blocks == 0 || room > 0) return absl::OkStatus();
  return absl::ErrnoToStatus(ENOSPC, absl::StrCat(path, " may be incomplete: its disk is full"));
}

}  // namespace

WorkerOutput::Files WorkerOutput::OpenFiles(const Plan& plan) {
  return {.out = OpenFile(plan, plan.redirects.out, plan.tee.out, plan.files.stdout_log),
          .err = OpenFile(plan, plan.redirects.err, plan.tee.err, plan.files.stderr_log)};
}

WorkerOutput::WorkerOutput(Console& console, DiskThread& disk, const Plan& plan, Files files)
    : console_(console), disk_(disk), limit_(console.io()) {
  for (const StreamFile* file : {&files.out, &files.err}) {
    if (!file->problem.ok()) console.Warn(file->problem);
  }
  const auto goes_only_to_console = [&](bool tee, const StreamFile& file) {
    return plan.shown && !tee && !file.of_worker && file.of_us == nullptr;
  };
  const bool both_to_console =
      goes_only_to_console(plan.tee.out, files.out) && goes_only_to_console(plan.tee.err, files.err);
  if (console.is_one() && both_to_console) {
    WorkerStream::Sinks sinks;
    sinks.console = &console.out();
    sinks.tail = &tail_;
    if (OpenPipe(out_, plan, std::move(sinks))) {
      err_.child_fd = out_.child_fd;
      sees_stderr_ = true;
      tail_has_stdout_ = true;
      return;
    }
  }
  Open(out_, plan,
       {.tee = plan.tee.out,
        .path = plan.files.stdout_log,
        .file = files.out,
        .console_fd = console.stdout_fd(),
        .console = &console.out(),
        .filtered = plan.filtered_stdout,
        .tail = nullptr,
        .inherits = console.stdout_is_device() || (plan.alone && !console.is_one())});
  Open(err_, plan,
       {.tee = plan.tee.err,
        .path = plan.files.stderr_log,
        .file = files.err,
        .console_fd = console.stderr_fd(),
        .console = &console.err(),
        .filtered = plan.filtered_stderr,
        .tail = &tail_,
        .inherits = console.stderr_is_terminal()});
  sees_stderr_ = err_.passed != nullptr;
}

void WorkerOutput::Open(Stream& stream, const Plan& plan, const StreamSpec& spec) {
  if (spec.file.of_worker) {
    stream.child_end = std::move(spec.file.of_worker);
    stream.child_fd = stream.child_end.get();
    stream.path = spec.path;
    return;
  }
  WorkerStream::Sinks sinks = SinksOf(plan, spec);
  const bool only_console = sinks.console != nullptr && sinks.file == nullptr && !sinks.prefix;
  const bool nowhere = sinks.console == nullptr && sinks.file == nullptr && sinks.tail == nullptr;
  if (!nowhere && !(only_console && spec.inherits) && OpenPipe(stream, plan, std::move(sinks))) return;
  if (plan.shown) {
    stream.child_fd = spec.console_fd;
  } else {
    OpenNullDevice(stream);
  }
}

WorkerStream::Sinks WorkerOutput::SinksOf(const Plan& plan, const StreamSpec& spec) {
  const bool tee = spec.tee && plan.shown;
  WorkerStream::Sinks sinks;
  if (spec.file.of_us != nullptr) {
    sinks.file = std::make_unique<QueuedLog>(&disk_, std::move(spec.file.of_us), console_.warn());
    sinks.disk = &disk_;
  }
  if (plan.shown && (tee || sinks.file == nullptr)) sinks.console = spec.console;
  if (tee) {
    sinks.prefix = plan.prefix;
    if (spec.filtered != nullptr) {
      sinks.filtered.emplace(spec.filtered, plan.prefix);
      sinks.disk = &disk_;
    }
  }
  sinks.tail = spec.tail;
  return sinks;
}

bool WorkerOutput::OpenPipe(Stream& stream, const Plan& plan, WorkerStream::Sinks sinks) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    console_.Warn(absl::ErrnoToStatus(errno, "cannot open a pipe for a worker's output"));
    return false;
  }
  UniqueFd ours(ends[0]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  if (plan.pipe_bytes > 0) fcntl(ours.get(), F_SETPIPE_SZ, plan.pipe_bytes);  // best effort
  stream.child_end.Reset(ends[1]);
  stream.child_fd = ends[1];
  stream.passed = std::make_unique<WorkerStream>(console_.io(), std::move(ours), std::move(sinks),
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
  InspectFiles();
  limit_.expires_after(limit);
  limit_.async_wait(alive_.Guard([this](const boost::system::error_code& error) {
    if (error) return;
    for (const Stream* stream : {&out_, &err_}) {
      if (stream->passed != nullptr && !stream->passed->closed()) stream->passed->Close();
    }
    overdue_ = true;
    CheckDrained();
  }));
  CheckDrained();
}

struct WorkerOutput::FileState {
  absl::Status problem;
  std::optional<std::string> tail;
};

void WorkerOutput::InspectFiles() {
  for (const Stream* stream : {&out_, &err_}) {
    if (stream->path.empty()) continue;
    ++inspections_;
    const auto file = std::make_shared<FileState>();
    disk_.Do(
        [file, path = stream->path, wants_tail = stream == &err_] {
          file->problem = CheckDiskSpace(path);
          if (wants_tail) file->tail = ReadFileTail(path);
        },
        alive_.Guard([this, file] {
          --inspections_;
          if (!file->problem.ok()) console_.Warn(file->problem);
          if (file->tail) file_tail_ = std::move(file->tail);
          CheckDrained();
        }));
  }
}

void WorkerOutput::CheckDrained() {
  if (!drained_) return;
  for (const Stream* stream : {&out_, &err_}) {
    if (!overdue_ && stream->passed != nullptr && !stream->passed->closed()) return;
  }
  if (!overdue_ && inspections_ > 0) return;
  limit_.cancel();
  for (Stream* stream : {&out_, &err_}) {
    if (stream->passed != nullptr && stream->passed->behind()) {
      console_.FinishShowing(std::move(stream->passed));
    }
  }
  boost::asio::post(console_.io(), alive_.Guard(std::exchange(drained_, nullptr)));
}

std::optional<std::string> WorkerOutput::StderrTail() const {
  if (sees_stderr_) return tail_.Get();
  return file_tail_;
}

}  // namespace ddprun
