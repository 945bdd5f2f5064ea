#include "net/name_lookup.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using Addresses = std::vector<SocketAddress>;

// Calls getaddrinfo, which may block, and sets `error` to its result: 0 on success.
absl::StatusOr<Addresses> Ask(const std::string& host, int port, int flags, int& error) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(
        host, " does not resolve (", error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error), ")"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    address.size = std::min<socklen_t>(a->ai_addrlen, sizeof address.storage);
    std::memcpy(&address.storage, a->ai_addr, address.size);
  }
  return addresses;
}

// Blocks all signals on this thread, so that other threads receive them.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

struct NameLookup::State {
  ~State() {
    if (fd >= 0) close(fd);
  }
  void Set(absl::StatusOr<Addresses> addresses) {
    {
      const std::lock_guard lock(mutex);
      result = std::move(addresses);
    }
    if (fd >= 0) eventfd_write(fd, 1);
  }

  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int error = fd < 0 ? errno : 0;
  std::mutex mutex;
  std::optional<absl::StatusOr<Addresses>> result;  // guarded by mutex
};

NameLookup::NameLookup(const std::string& host, int port) : state_(std::make_shared<State>()) {
  int error = 0;
  absl::StatusOr<Addresses> numeric = Ask(host, port, AI_NUMERICHOST, error);
  if (error != EAI_NONAME) {
    state_->Set(std::move(numeric));
  } else if (state_->fd < 0) {
    state_->Set(absl::UnavailableError(absl::StrCat("cannot look up ", host, ": ", strerror(state_->error))));
  } else {
    AskInAThread(host, port);
  }
}

void NameLookup::AskInAThread(const std::string& host, int port) {
  try {
    std::thread([state = state_, host, port] {
      BlockSignals();
      int ignored = 0;
      state->Set(Ask(host, port, 0, ignored));
    }).detach();
  } catch (const std::system_error& e) {
    state_->Set(absl::UnavailableError(absl::StrCat("cannot look up ", host, ": ", e.what())));
  }
}

int NameLookup::fd() const { return state_->fd; }

absl::StatusOr<std::vector<SocketAddress>> NameLookup::Result() const {
  const std::lock_guard lock(state_->mutex);
  return *state_->result;
}

absl::StatusOr<std::vector<SocketAddress>> ResolveName(const std::string& host, int port,
                                                       TimePoint deadline) {
  const NameLookup lookup(host, port);
  while (lookup.fd() >= 0) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    pollfd answer{.fd = lookup.fd(), .events = POLLIN, .revents = 0};
    const int n = poll(&answer, 1, static_cast<int>(std::clamp<int64_t>(ToMillis(left), 0, INT_MAX)));
    if (n > 0) break;
    if (n < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", strerror(errno)));
    if (n == 0 && left <= Duration::zero()) {
      return absl::DeadlineExceededError(
          absl::StrCat(host, " does not resolve (the name server has not answered in time)"));
    }
  }
  return lookup.Result();
}

}  // namespace ddprun
