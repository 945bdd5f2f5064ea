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

bool DiskIsFull(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

std::unique_ptr<OutputSink> OutputSink::ForConsole(boost::asio::io_context& io, int fd, std::string name,
                                                   OnError on_error) {
  struct stat info = {};
  fstat(fd, &info);
  const auto make = [&](UniqueFd own, Kind kind) {
    return std::unique_ptr<OutputSink>(
        new OutputSink(io, std::move(own), kind, std::move(name), std::move(on_error)));
  };
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (S_ISSOCK(info.st_mode)) return make(std::move(copy), Kind::kSocket);
  if (S_ISFIFO(info.st_mode) || isatty(fd)) {
    // O_NONBLOCK belongs to what is shared with the shell and the workers: open it once more for ourselves.
    UniqueFd own(
        open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own) return make(std::move(own), Kind::kNonBlocking);
  }
  const bool others_made_it_non_blocking = !S_ISREG(info.st_mode) && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
  return make(std::move(copy), others_made_it_non_blocking ? Kind::kNonBlocking : Kind::kBlocking);
}

absl::StatusOr<std::unique_ptr<OutputSink>> OutputSink::ForFile(boost::asio::io_context& io,
                                                                const std::string& path, OnError on_error) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return std::unique_ptr<OutputSink>(
      new OutputSink(io, std::move(fd), Kind::kBlocking, path, std::move(on_error)));
}

OutputSink::OutputSink(boost::asio::io_context& io, UniqueFd fd, Kind kind, std::string name,
                       OnError on_error)
    : io_(io),
      ready_(io),
      kind_(kind),
      fd_(std::move(fd)),
      name_(std::move(name)),
      on_error_(std::move(on_error)) {
  if (kind_ != Kind::kBlocking) ready_.assign(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
}

bool OutputSink::full() const { return queue_.size() - sent_ > kFullBytes; }

void OutputSink::Write(absl::string_view bytes) {
  if (failed_ || bytes.empty()) return;
  if (missing_ > 0 && !WriteGapLine()) {
    missing_ += static_cast<int64_t>(bytes.size());
    return;
  }
  queue_.append(bytes.data(), bytes.size());
  if (!waiting_) Pump();
}

void OutputSink::WhenRoom(std::function<void()> ready) {
  room_waiters_.push_back(std::move(ready));
  CallWaiters();
}

void OutputSink::WhenEmpty(std::function<void()> done) {
  empty_waiters_.push_back(std::move(done));
  CallWaiters();
}

ssize_t OutputSink::Put(absl::string_view bytes) {
  if (kind_ == Kind::kSocket) return send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return write(fd_.get(), bytes.data(), bytes.size());
}

void OutputSink::Pump() {
  while (sent_ < queue_.size()) {
    const ssize_t n = Put(absl::string_view(queue_).substr(sent_));
    if (n >= 0) {
      sent_ += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN && kind_ != Kind::kBlocking) {
      waiting_ = true;
      ready_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                        alive_.Guard([this](const boost::system::error_code& error) {
                          waiting_ = false;
                          if (!error) Pump();
                        }));
      break;
    }
    Fail(errno);
  }
  if (sent_ == queue_.size() || sent_ > kFullBytes) {
    queue_.erase(0, sent_);
    sent_ = 0;
  }
  CallWaiters();
}

void OutputSink::Fail(int error) {
  const bool may_mend = DiskIsFull(error);
  if (may_mend) missing_ += static_cast<int64_t>(queue_.size() - sent_);
  failed_ = !may_mend;
  queue_.clear();
  sent_ = 0;
  if (std::exchange(told_, true)) return;
  on_error_(absl::ErrnoToStatus(error, absl::StrCat("cannot write to ", name_,
                                                    may_mend ? "; what does not fit is missing there"
                                                             : "; its output is lost from here")));
}

bool OutputSink::WriteGapLine() {
  const std::string line =
      absl::StrCat("\n[ddprun: ", missing_, " bytes are missing here, the disk was full]\n");
  if (Put(line) != static_cast<ssize_t>(line.size())) return false;
  missing_ = 0;
  return true;
}

void OutputSink::CallWaiters() {
  const auto call = [this](std::vector<std::function<void()>>& waiters) {
    for (auto& waiter : std::exchange(waiters, {})) boost::asio::post(io_, std::move(waiter));
  };
  if (!full()) call(room_waiters_);
  if (queue_.empty()) call(empty_waiters_);
}

}  // namespace ddprun
