#include "launcher/logs/output_sink.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr size_t kFullBytes = 1 << 20;
constexpr size_t kMaxSpares = 4;
// Approximate memory overhead of a job.
constexpr size_t kJobBytes = 512;

bool IsEmpty(int pipe) {
  int bytes = 0;
  return ioctl(pipe, FIONREAD, &bytes) == 0 && bytes == 0;
}

}  // namespace

OutputSink::OutputSink(boost::asio::io_context& io, int fd, std::string name, OnError on_error)
    : io_(io), name_(std::move(name)), on_error_(std::move(on_error)), ready_(io) {
  struct stat info = {};
  fstat(fd, &info);
  is_socket_ = S_ISSOCK(info.st_mode);
  is_pipe_ = S_ISFIFO(info.st_mode);
  const bool is_terminal = isatty(fd) != 0;
  if (is_pipe_ || is_terminal) {
    // Reopen the file to get a separate open file description. The shell and the workers share the original
    // one, and O_NONBLOCK would affect them too.
    fd_.Reset(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  if (!fd_) {
    UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    const bool is_non_blocking = !S_ISREG(info.st_mode) && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
    if (!is_socket_ && !is_non_blocking) {
      file_ = std::make_shared<FileWriter>(std::move(copy), name_);
      // Devices such as /dev/null never block.
      if (!S_ISCHR(info.st_mode) || is_terminal) disk_.emplace(io);
      return;
    }
    fd_ = std::move(copy);
  }
  ready_.assign(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
}

bool OutputSink::full() const { return disk_ ? disk_->full() : move_ || queue_.size() - sent_ > kFullBytes; }

void OutputSink::Write(absl::string_view bytes, Writer writer) {
  Write([bytes](std::string& out) { out.append(bytes.data(), bytes.size()); }, writer);
}

void OutputSink::Write(absl::FunctionRef<void(std::string&)> append, Writer writer) {
  if (disk_) {
    std::string bytes;
    if (!spares_.empty()) {
      bytes = std::move(spares_.back());
      spares_.pop_back();
    }
    Append(append, writer, bytes);
    return WriteOnDisk(std::move(bytes));
  }
  Append(append, writer, queue_);
  if (failed_) queue_.clear();
  if (file_) {
    file_->Write(queue_);
    queue_.clear();
    if (const absl::Status problem = file_->TakeProblem(); !problem.ok()) on_error_(problem);
  } else if (!waiting_) {
    Pump();
  }
}

void OutputSink::Write(absl::string_view first, absl::string_view second, Writer writer) {
  if (first.empty() && second.empty()) return;
  size_t taken = 0;
  const bool new_line = in_line_ && *in_line_ != writer;
  if (!file_ && !waiting_ && !failed_ && queue_.empty() && !new_line) {
    const iovec pieces[] = {{.iov_base = const_cast<char*>(first.data()), .iov_len = first.size()},
                            {.iov_base = const_cast<char*>(second.data()), .iov_len = second.size()}};
    // Ignore errors here, because the same error occurs again in Pump, which reports it.
    taken = static_cast<size_t>(std::max<ssize_t>(Put(pieces, std::size(pieces)), 0));
    taken_ += static_cast<int64_t>(taken);
  }
  if (taken == first.size() + second.size()) {
    NoteEnd((second.empty() ? first : second).back(), writer);
    return;
  }
  Write(
      [&](std::string& out) {
        const size_t of_first = std::min(taken, first.size());
        out.append(first.data() + of_first, first.size() - of_first);
        out.append(second.data() + (taken - of_first), second.size() - (taken - of_first));
      },
      writer);
}

void OutputSink::Append(absl::FunctionRef<void(std::string&)> append, Writer writer, std::string& out) {
  const size_t before = out.size();
  append(out);
  if (out.size() == before) return;
  if (in_line_ && *in_line_ != writer) out.insert(before, 1, '\n');
  NoteEnd(out.back(), writer);
}

void OutputSink::NoteEnd(char last, Writer writer) {
  in_line_.reset();
  if (last != '\n' && last != '\r') in_line_ = writer;
}

void OutputSink::WriteOnDisk(std::string bytes) {
  if (bytes.empty()) return;
  const size_t memory = bytes.capacity() + kJobBytes;
  const auto job = std::make_shared<std::pair<std::string, absl::Status>>(std::move(bytes), absl::OkStatus());
  disk_->Do(
      [file = file_, job] {
        file->Write(job->first);
        job->second = file->TakeProblem();
      },
      [this, job] {
        taken_ += static_cast<int64_t>(job->first.size());
        if (spares_.size() < kMaxSpares && job->first.capacity() <= kFullBytes) {
          job->first.clear();
          spares_.push_back(std::move(job->first));
        }
        if (!job->second.ok()) on_error_(job->second);
        if (empty()) CallWaiters();
      },
      memory);
}

void OutputSink::WhenRoom(std::function<void()> ready) {
  if (disk_) return disk_->WhenRoom(std::move(ready));
  room_waiters_.push_back({.ready = std::move(ready), .needs_idle = false});
  CallWaiters();
}

void OutputSink::WhenIdle(std::function<void()> ready) {
  room_waiters_.push_back({.ready = std::move(ready), .needs_idle = true});
  CallWaiters();
}

void OutputSink::WhenEmpty(std::function<void()> done) {
  empty_waiters_.push_back(std::move(done));
  CallWaiters();
}

ssize_t OutputSink::Put(const iovec* pieces, size_t count) {
  if (!is_socket_) return writev(fd_.get(), pieces, static_cast<int>(count));
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  return sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool OutputSink::Move(absl::string_view first, int from, size_t bytes, std::function<void()> done) {
  queue_.assign(first.data(), first.size());
  move_ = {.from = from, .left = bytes, .at = queue_.size(), .done = nullptr};
  Pump();
  if (!move_) return true;
  move_->done = std::move(done);
  return false;
}

void OutputSink::FinishMoveByCopy() {
  queue_.insert(move_->at, TakeRestOfMove());
  move_.reset();
  CallWaiters();  // Pump writes the queue when the pending wait for the reader ends.
}

std::string OutputSink::TakeRestOfMove() {
  std::string rest(move_->left, '\0');
  size_t got = 0;
  while (got < rest.size()) {
    const ssize_t n = read(move_->from, rest.data() + got, rest.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  rest.resize(got);
  return rest;
}

void OutputSink::Pump() {
  if (PumpQueue(move_ ? move_->at : queue_.size()) && PumpMove()) PumpQueue(queue_.size());
  if (!move_ && (sent_ == queue_.size() || sent_ > kFullBytes)) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
  CallWaiters();
}

bool OutputSink::PumpQueue(size_t end) {
  while (sent_ < std::min(end, queue_.size())) {
    const iovec rest = {.iov_base = queue_.data() + sent_, .iov_len = end - sent_};
    const ssize_t n = Put(&rest, 1);
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
      taken_ += n;
    } else if (errno == EAGAIN) {
      AwaitReader();
      return false;
    } else if (errno != EINTR) {
      Fail();
    }
  }
  return true;
}

bool OutputSink::PumpMove() {
  while (move_ && move_->left > 0 && !failed_) {
    const ssize_t n = splice(move_->from, nullptr, fd_.get(), nullptr, move_->left, SPLICE_F_NONBLOCK);
    if (n > 0) {
      move_->left -= static_cast<size_t>(n);
      taken_ += n;
      moved_ += n;
    } else if (n == 0) {
      break;  // The pipe is empty and has no writer.
    } else if (errno == EAGAIN) {
      if (IsEmpty(move_->from)) break;
      AwaitReader();
      return false;
    } else if (errno != EINTR) {
      Fail();
    }
  }
  if (!move_) return true;
  if (failed_) TakeRestOfMove();
  const std::function<void()> done = std::move(move_->done);
  move_.reset();
  if (done) done();
  return true;
}

void OutputSink::AwaitReader() {
  waiting_ = true;
  ready_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                    alive_.Guard([this](const boost::system::error_code& error) {
                      waiting_ = false;
                      if (!error) Pump();
                    }));
}

void OutputSink::Fail() {
  failed_ = true;
  queue_.clear();
  sent_ = 0;
  on_error_(absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", name_, "; further output is lost")));
}

void OutputSink::CallWaiters() {
  if (MayServe() && !std::exchange(serving_, true)) {
    boost::asio::post(io_, alive_.Guard([this] { ServeRoomWaiters(); }));
  }
  if (!empty()) return;
  for (auto& waiter : std::exchange(empty_waiters_, {})) boost::asio::post(io_, std::move(waiter));
}

bool OutputSink::MayServe() const {
  if (room_waiters_.empty()) return false;
  return room_waiters_.front().needs_idle ? idle() : !full();
}

// Calls waiters in order while there is room. Waiters that are added during this call are served by the next
// call.
void OutputSink::ServeRoomWaiters() {
  for (size_t left = room_waiters_.size(); left > 0 && MayServe(); --left) {
    const std::function<void()> ready = std::move(room_waiters_.front().ready);
    room_waiters_.pop_front();
    ready();
  }
  serving_ = false;
  CallWaiters();
}

}  // namespace ddprun
