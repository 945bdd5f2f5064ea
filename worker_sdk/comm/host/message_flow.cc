#include "worker_sdk/comm/host/message_flow.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

namespace ddprun {

void MessageFlow::Add(const Frame& frame, std::vector<iovec> parts) {
  if (messages_.empty()) last_moved_ = std::chrono::steady_clock::now();
  Message& m = messages_.emplace_back();
  m.frame = frame;
  m.frame.num_bytes = 0;
  for (const iovec& part : parts) m.frame.num_bytes += part.iov_len;
  m.expected = m.frame;
  m.parts = std::move(parts);
  // Elements of a deque do not move, so the address is final.
  m.parts.insert(m.parts.begin(), {.iov_base = &m.frame, .iov_len = sizeof(Frame)});
}

bool MessageFlow::Move() {
  Message& m = messages_.front();
  bool moved = false;
  while (state_ == State::kReady && !m.done()) {
    // When receiving, the frame is read separately: the payload is read only if the frame is as expected.
    msghdr msg{};
    msg.msg_iov = &m.parts[m.next];
    msg.msg_iovlen = !sends_ && m.next == 0 ? 1 : std::min<size_t>(m.parts.size() - m.next, IOV_MAX);
    const ssize_t n =
        sends_ ? sendmsg(fd_, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) : recvmsg(fd_, &msg, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      state_ = State::kBlocked;
    } else if (n < 0 || (n == 0 && !sends_)) {
      state_ = State::kBroken;
      error_ = n < 0 ? errno : ECONNRESET;  // 0: the peer has closed the connection
    } else {
      moved = true;
      m.Advance(static_cast<size_t>(n));
      const bool has_frame = !sends_ && m.next > 0;
      if (has_frame && std::memcmp(&m.frame, &m.expected, sizeof(Frame)) != 0) state_ = State::kForeign;
    }
  }
  if (moved) last_moved_ = std::chrono::steady_clock::now();
  return state_ != State::kForeign && m.done();
}

void MessageFlow::Message::Advance(size_t num_bytes) {
  while (!done()) {
    iovec& part = parts[next];
    const size_t step = std::min(num_bytes, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + step;
    part.iov_len -= step;
    num_bytes -= step;
    if (part.iov_len > 0) return;
    ++next;
  }
}

}  // namespace ddprun
