#include "launcher/logs/output_sink.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr size_t kFullBytes = 1 << 20;
constexpr size_t kMaxSpares = 4;
// What a job takes besides its bytes, about.
constexpr size_t kJobBytes = 512;

}  // namespace

OutputSink::OutputSink(boost::asio::io_context& io, int fd, std::string name, OnError on_error)
    : io_(io), name_(std::move(name)), on_error_(std::move(on_error)), ready_(io) {
  struct stat info = {};
  fstat(fd, &info);
  is_socket_ = S_ISSOCK(info.st_mode);
  const bool is_terminal = isatty(fd) != 0;
  if (S_ISFIFO(info.st_mode) || is_terminal) {
    // O_NONBLOCK belongs to what is shared with the shell and the workers: open it once more for ourselves.
    fd_.Reset(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  }
  if (!fd_) {
    UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    const bool others_made_it_non_blocking = !S_ISREG(info.st_mode) && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
    if (!is_socket_ && !others_made_it_non_blocking) {
      file_ = std::make_shared<FileWriter>(std::move(copy), name_);
      // /dev/null and its like never block.
      if (!S_ISCHR(info.st_mode) || is_terminal) disk_.emplace(io);
      return;
    }
    fd_ = std::move(copy);
  }
  ready_.assign(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
}

bool OutputSink::full() const { return disk_ ? disk_->full() : queue_.size() - sent_ > kFullBytes; }

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
    return WriteAside(std::move(bytes));
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

void OutputSink::Append(absl::FunctionRef<void(std::string&)> append, Writer writer, std::string& out) {
  const size_t before = out.size();
  append(out);
  if (out.size() == before) return;
  const char last = out.back();
  if (in_line_ && *in_line_ != writer) out.insert(before, 1, '\n');
  in_line_.reset();
  if (last != '\n' && last != '\r') in_line_ = writer;
}

void OutputSink::WriteAside(std::string bytes) {
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
  room_waiters_.push_back(std::move(ready));
  CallWaiters();
}

void OutputSink::WhenEmpty(std::function<void()> done) {
  empty_waiters_.push_back(std::move(done));
  CallWaiters();
}

ssize_t OutputSink::Put(absl::string_view bytes) {
  if (is_socket_) return send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return write(fd_.get(), bytes.data(), bytes.size());
}

void OutputSink::Pump() {
  while (sent_ < queue_.size()) {
    const ssize_t n = Put(absl::string_view(queue_).substr(sent_));
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
      taken_ += n;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      waiting_ = true;
      ready_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                        alive_.Guard([this](const boost::system::error_code& error) {
                          waiting_ = false;
                          if (!error) Pump();
                        }));
      break;
    }
    failed_ = true;
    queue_.clear();
    sent_ = 0;
    on_error_(absl::ErrnoToStatus(errno,
                                  absl::StrCat("cannot write to ", name_, "; its output is lost from here")));
  }
  if (sent_ == queue_.size() || sent_ > kFullBytes) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
  CallWaiters();
}

void OutputSink::CallWaiters() {
  if (!full() && !room_waiters_.empty() && !std::exchange(serving_, true)) {
    boost::asio::post(io_, alive_.Guard([this] { ServeRoomWaiters(); }));
  }
  if (!empty()) return;
  for (auto& waiter : std::exchange(empty_waiters_, {})) boost::asio::post(io_, std::move(waiter));
}

// One after the other, as long as there is room: who has waited longest is next, whatever the others write.
void OutputSink::ServeRoomWaiters() {
  for (size_t left = room_waiters_.size(); left > 0 && !full(); --left) {
    const std::function<void()> ready = std::move(room_waiters_.front());
    room_waiters_.pop_front();
    ready();
  }
  serving_ = false;
  CallWaiters();
}

}  // namespace ddprun
