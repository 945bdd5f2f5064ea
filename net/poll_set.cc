#include "net/poll_set.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using boost::system::error_code;

// Limits for one turn. Sixteen full batches of short requests take a few milliseconds. The time limit applies
// if requests take longer, for example because their replies are several megabytes long.
constexpr int kBatchesPerTurn = 16;
constexpr std::chrono::milliseconds kTurn(5);
// A client on this host sends its next request within about 10 us of a reply.
constexpr std::chrono::microseconds kLinger(20);
constexpr int kMaxSkipped = 256;  // see Linger

absl::Status ExhaustedError(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", std::strerror(errno), " (see `ulimit -n` and fs.epoll.max_user_watches)"));
}

}  // namespace

boost::asio::execution_context::id PollSet::id;

PollSet& PollSet::Of(boost::asio::io_context& io) { return boost::asio::use_service<PollSet>(io); }

PollSet::PollSet(boost::asio::io_context& io) : boost::asio::execution_context::service(io), epoll_(io) {}

void PollSet::shutdown() {
  error_code ec;
  epoll_.close(ec);
}

absl::Status PollSet::Add(int fd, uint32_t events, Handler* handler) {
  if (!epoll_.is_open()) {
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return ExhaustedError("cannot create an epoll set");
    error_code ec;
    epoll_.assign(epoll, ec);
    if (ec) return absl::InternalError(absl::StrCat("cannot watch an epoll set: ", ec.message()));
  }
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0)
    return ExhaustedError("cannot watch a socket");
  ++size_;
  if (end_ == 0) Await();  // otherwise a turn is in progress, and Turn calls Await at its end
  return absl::OkStatus();
}

void PollSet::Change(int fd, uint32_t events, Handler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_MOD, fd, &event) != 0) std::abort();  // fd was not added
}

void PollSet::Remove(int fd, Handler* handler) {
  for (int i = next_; i < end_; ++i) {
    if (batch_[i].data.ptr == handler) batch_[i].data.ptr = nullptr;
  }
  if (!epoll_.is_open()) return;  // after shutdown()
  epoll_event ignored{};
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, &ignored) != 0)
    std::abort();  // fd was not added
  if (--size_ == 0 && awaiting_) {
    error_code ec;
    epoll_.cancel(ec);
  }
}

void PollSet::Await() {
  if (awaiting_ || size_ == 0) return;
  awaiting_ = true;
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](error_code) {
    awaiting_ = false;
    Turn();
  });
}

void PollSet::Turn() {
  const auto end = std::chrono::steady_clock::now() + kTurn;
  for (int i = 0; i < kBatchesPerTurn && size_ > 0; ++i) {
    if (i > 0 && std::chrono::steady_clock::now() > end) break;
    end_ = ::epoll_wait(epoll_.native_handle(), batch_, kEventsPerBatch, 0);
    if (end_ == 0) end_ = Linger();
    if (end_ <= 0) break;
    for (next_ = 0; next_ < end_;) {
      const epoll_event& event = batch_[next_++];
      if (event.data.ptr != nullptr) static_cast<Handler*>(event.data.ptr)->OnEvents(event.events);
    }
  }
  next_ = end_ = 0;
  Await();
}

// Polls for up to kLinger and returns the number of new events, or -1 on an error. When a client sends many
// requests in sequence, the next request arrives so soon that polling costs both sides less than sleeping and
// waking up. A miss is a call that polls and finds no event. After the first miss, one call returns 0 without
// polling. Each further consecutive miss doubles the number of calls that return 0 without polling, up to
// kMaxSkipped. An event resets this number to 1. A set that is rarely busy therefore hardly ever polls.
int PollSet::Linger() {
  if (lingers_to_skip_ > 0) {
    --lingers_to_skip_;
    return 0;
  }
  const auto end = std::chrono::steady_clock::now() + kLinger;
  do {
    const int n = ::epoll_wait(epoll_.native_handle(), batch_, kEventsPerBatch, 0);
    if (n != 0) {
      skip_after_miss_ = 1;
      return n;
    }
  } while (std::chrono::steady_clock::now() < end);
  lingers_to_skip_ = skip_after_miss_;
  skip_after_miss_ = std::min(2 * skip_after_miss_, kMaxSkipped);
  return 0;
}

}  // namespace ddprun
