#include "launcher/process/last_words.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For writing the words and for waiting until the peer closes the connection.
constexpr milliseconds kWordsLimit{1'000};

}  // namespace

void LastWords::Set(UniqueFd line, const UniqueFd& file, uint64_t bytes) {
  line_.Reset();
  words_.resize(bytes);
  if (pread(file.get(), words_.data(), bytes, 0) == static_cast<ssize_t>(bytes)) line_ = std::move(line);
}

void LastWords::Write() const {
  if (!line_) return;
  const auto deadline = Clock::now() + kWordsLimit;
  // Returns true if the socket becomes ready before the deadline.
  const auto await = [&](short event) {
    pollfd line = {.fd = line_.get(), .events = event, .revents = 0};
    const int64_t left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    return left > 0 && poll(&line, 1, static_cast<int>(left)) == 1;
  };
  for (size_t sent = 0; sent < words_.size();) {
    const ssize_t n =
        send(line_.get(), words_.data() + sent, words_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !await(POLLOUT))) {
      return;
    }
  }
  // Read until the peer closes the connection. If data from the peer were unread when the socket is
  // closed, the kernel would send a reset, and the peer might lose the words.
  shutdown(line_.get(), SHUT_WR);
  char unread[4096];
  while (await(POLLIN) && recv(line_.get(), unread, sizeof unread, MSG_DONTWAIT) > 0) {
  }
}

}  // namespace ddprun
