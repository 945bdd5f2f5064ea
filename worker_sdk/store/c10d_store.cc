#include "worker_sdk/store/c10d_store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/store/tcp_dial.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Opcodes of the versioned dialect.
enum Op : char { kValidate = 0, kSet = 1, kGet = 3, kWait = 6, kCancelWait = 12, kPing = 13 };
constexpr uint32_t kValidateMagic = 0x3C85F7CE;
enum Reply : char { kStopWaiting = 0, kWaitCanceled = 1 };

// Limits of ddprun's store.
constexpr size_t kMaxKeyBytes = 8 << 10;
constexpr size_t kMaxValueBytes = 8 << 20;

constexpr Duration kFirstPause = milliseconds(10);
constexpr Duration kLongestPause = seconds(1);
// A store answers CANCEL_WAIT immediately.
constexpr Duration kCancelTimeout = seconds(5);

template <typename T>
void Append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);  // all machines are little-endian
}
void AppendString(std::string& out, std::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

}  // namespace

C10dStore::C10dStore(std::string host, int port, std::string prefix, Duration connect_timeout)
    : host_(std::move(host)),
      port_(port),
      prefix_(std::move(prefix)),
      timeout_(connect_timeout),
      cancel_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DDPRUN_CHECK(cancel_fd_, "no descriptors are left");
}

void C10dStore::Cancel() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(cancel_fd_.get(), &one, sizeof one);
}

std::string C10dStore::KeyOf(std::string_view key) const { return StrCat("/", prefix_, key); }

Status C10dStore::Broken(const Status& why) {
  fd_.Reset();
  // Other codes would blame the key, or this worker.
  const bool keeps_code =
      why.code() == StatusCode::kFailedPrecondition || why.code() == StatusCode::kCancelled;
  const StatusCode code = keeps_code ? why.code() : StatusCode::kUnavailable;
  return {code, StrCat("worker store ", host_, ":", port_, ": ", why.message())};
}

Status C10dStore::Connect() {
  pollfd cancelled{.fd = cancel_fd_.get(), .events = POLLIN, .revents = 0};
  if (poll(&cancelled, 1, 0) > 0) return Broken(CancelledError("cancelled"));
  if (fd_) return OkStatus();
  if (port_ == 0) {
    return FailedPreconditionError(
        "there is no worker store: MASTER_PORT is not set (start this program with ddprun)");
  }
  const TimePoint deadline = Clock::now() + timeout_;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const Status status = TryConnect(deadline);
    if (status.ok()) return status;
    const Status broken = Broken(status);
    if (!IsUnavailable(status) || Clock::now() + pause >= deadline) return broken;
    const Status paused = AwaitReady(-1, 0, Clock::now() + pause, cancel_fd_.get());
    if (!IsDeadlineExceeded(paused)) return Broken(paused);
  }
}

Status C10dStore::TryConnect(TimePoint deadline) {
  DDPRUN_ASSIGN_OR_RETURN(fd_, DialTcp(host_, port_, deadline, cancel_fd_.get()));
  const Status greeted = Greet(deadline);
  // A slow store may answer a later attempt, so this is an error of the connection.
  return IsDeadlineExceeded(greeted) ? UnavailableError(greeted.message()) : greeted;
}

Status C10dStore::Greet(TimePoint deadline) {
  const auto nonce = static_cast<uint32_t>(getpid());
  std::string out(1, kValidate);
  Append(out, kValidateMagic);
  out.push_back(kPing);
  Append(out, nonce);
  DDPRUN_RETURN_IF_ERROR(Send(out, deadline));
  uint32_t echo = 0;
  DDPRUN_RETURN_IF_ERROR(Receive(reinterpret_cast<char*>(&echo), sizeof echo, deadline),
                         "greeting it as a c10d store");
  return echo == nonce ? OkStatus() : FailedPreconditionError("the server that answered is not a c10d store");
}

Status C10dStore::Set(std::string_view key, std::string_view value) {
  const std::string name = KeyOf(key);
  if (name.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return ResourceExhaustedError(StrCat("key ", name.substr(0, 100), " with a value of ", value.size(),
                                         " bytes: a store accepts keys of ", kMaxKeyBytes, " and values of ",
                                         kMaxValueBytes, " bytes"));
  }
  const std::lock_guard<std::mutex> lock(mu_);
  DDPRUN_RETURN_IF_ERROR(Connect());
  std::string out(1, kSet);
  AppendString(out, name);
  AppendString(out, value);
  const Status sent = Send(out, Clock::now() + timeout_);
  return sent.ok() ? sent : Broken(sent);
}

StatusOr<std::string> C10dStore::Get(std::string_view key, Duration timeout) {
  const std::string name = KeyOf(key);
  if (name.size() > kMaxKeyBytes) {
    return ResourceExhaustedError(StrCat("key ", name.substr(0, 100), "... has ", name.size(),
                                         " bytes: a store accepts keys of ", kMaxKeyBytes, " bytes"));
  }
  const std::lock_guard<std::mutex> lock(mu_);
  DDPRUN_RETURN_IF_ERROR(Connect());
  DDPRUN_RETURN_IF_ERROR(Await(name, Clock::now() + timeout));
  std::string out(1, kGet);
  AppendString(out, name);
  const TimePoint reply_deadline = Clock::now() + timeout_;
  const Status sent = Send(out, reply_deadline);
  if (!sent.ok()) return Broken(sent);
  StatusOr<std::string> value = ReceiveValue(reply_deadline);
  if (!value.ok()) return Broken(value.status());
  return value;
}

Status C10dStore::Await(const std::string& key, TimePoint deadline) {
  std::string out(1, kWait);
  Append(out, uint64_t{1});
  AppendString(out, key);
  const Status sent = Send(out, Clock::now() + timeout_);
  if (!sent.ok()) return Broken(sent);
  char reply = kStopWaiting;
  Status received = Receive(&reply, 1, deadline);
  if (received.ok() && reply == kStopWaiting) return OkStatus();
  if (received.ok()) return Broken(InternalError("unexpected reply to WAIT"));
  if (!IsDeadlineExceeded(received)) return Broken(received);

  // The wait may end while it is being cancelled. Its reply then precedes the reply to CANCEL_WAIT.
  const TimePoint cancel_deadline = Clock::now() + kCancelTimeout;
  received = Send(std::string(1, kCancelWait), cancel_deadline);
  if (received.ok()) received = Receive(&reply, 1, cancel_deadline);
  const bool came = received.ok() && reply == kStopWaiting;
  if (came) received = Receive(&reply, 1, cancel_deadline);
  if (!received.ok()) return Broken(received);
  if (reply != kWaitCanceled) return Broken(InternalError("unexpected reply to CANCEL_WAIT"));
  if (came) return OkStatus();
  return DeadlineExceededError(
      StrCat("worker store ", host_, ":", port_, ": timed out waiting for key ", key));
}

Status C10dStore::Send(std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      DDPRUN_RETURN_IF_ERROR(AwaitReady(fd_.get(), POLLOUT, deadline, cancel_fd_.get()));
    } else if (errno != EINTR) {
      return UnavailableError(StrCat("the connection broke (", std::strerror(errno), ")"));
    }
  }
  return OkStatus();
}

Status C10dStore::Receive(char* data, size_t size, TimePoint deadline) {
  while (size > 0) {
    DDPRUN_RETURN_IF_ERROR(AwaitReady(fd_.get(), POLLIN, deadline, cancel_fd_.get()));
    const ssize_t n = recv(fd_.get(), data, size, 0);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0) {
      return UnavailableError("the store closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return UnavailableError(StrCat("the connection broke (", std::strerror(errno), ")"));
    }
  }
  return OkStatus();
}

StatusOr<std::string> C10dStore::ReceiveValue(TimePoint deadline) {
  uint64_t size = 0;
  DDPRUN_RETURN_IF_ERROR(Receive(reinterpret_cast<char*>(&size), sizeof size, deadline));
  if (size > kMaxValueBytes) return InternalError(StrCat("the store announced a value of ", size, " bytes"));
  std::string value(size, '\0');
  DDPRUN_RETURN_IF_ERROR(Receive(value.data(), value.size(), deadline));
  return value;
}

}  // namespace ddprun
