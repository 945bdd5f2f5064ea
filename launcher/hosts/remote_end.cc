#include "launcher/hosts/remote_end.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/hosts/start_message.h"

namespace ddprun {
namespace {

constexpr Duration kMessageLimit = seconds(60);

// Waits until `fd` is readable or at its end. Returns false after `limit`.
bool AwaitInput(int fd, Duration limit) {
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const Duration left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return false;
    const int ready = poll(&entry, 1, static_cast<int>(ToMillis(left)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // read() will report the error
  }
}

absl::StatusOr<std::string> ReadExactly(int fd, size_t size, TimePoint deadline) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    if (!AwaitInput(fd, deadline - std::chrono::steady_clock::now())) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the starter has sent ", have, " of ", size, " bytes within ", kMessageLimit / seconds(1),
          " s: the connection is too slow, or ddprun --hosts is stopped"));
    }
    const ssize_t n = read(fd, bytes.data() + have, size - have);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, "cannot read from the starter");
    if (n == 0) {
      return absl::UnavailableError(
          "the starter has ended before its message was complete (ddprun --from-starter is started by ddprun "
          "--hosts only)");
    }
    have += static_cast<size_t>(n);
  }
  return bytes;
}

absl::Status EnterDirectory(const std::string& directory) {
  if (chdir(directory.c_str()) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot enter the working directory ", directory,
                                            " on this host: start ddprun --hosts in a directory that exists "
                                            "on all hosts, for example on a shared file system"));
  }
  setenv("PWD", directory.c_str(), 1);
  return absl::OkStatus();
}

// Gives the process the signal as if another process had sent it, so that it is delivered to any thread.
void GiveSignal(int signo) { kill(getpid(), signo); }

void Follow(const UniqueFd& line) {
  char frames[64];
  while (AwaitInput(line.get(), kSilenceLimit)) {
    const ssize_t n = read(line.get(), frames, sizeof frames);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      if (frames[i] != kStillHere) GiveSignal(static_cast<unsigned char>(frames[i]));
    }
  }
  GiveSignal(SIGTERM);
}

}  // namespace

absl::StatusOr<RemoteStart> ReceiveStart() {
  const TimePoint deadline = std::chrono::steady_clock::now() + kMessageLimit;
  RemoteStart start;
  start.life_line.Reset(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!start.life_line)
    return absl::ErrnoToStatus(errno, "cannot use stdin, through which the starter sends");
  ASSIGN_OR_RETURN(const std::string header, ReadExactly(start.life_line.get(), kStartHeaderBytes, deadline));
  ASSIGN_OR_RETURN(const size_t length, StartLength(header));
  ASSIGN_OR_RETURN(const std::string bytes, ReadExactly(start.life_line.get(), length, deadline));
  ASSIGN_OR_RETURN(StartMessage message, DecodeStart(bytes));
  for (const auto& [name, value] : message.environment) setenv(name.c_str(), value.c_str(), 1);
  RETURN_IF_ERROR(EnterDirectory(message.directory));
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null || dup2(null.get(), STDIN_FILENO) < 0) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  const std::string started = absl::StrCat(kStartedLine, "\n");
  if (const int error = WriteAll(STDOUT_FILENO, started); error != 0) {
    return absl::ErrnoToStatus(error, "cannot answer the starter");
  }
  start.arguments = std::move(message.arguments);
  start.job = JobOfHosts(message.hosts, message.node, message.run_id);
  return start;
}

void FollowLifeLine(UniqueFd life_line) {
  // The thread must not take the signals that the launcher handles or holds.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([line = std::move(life_line)] { Follow(line); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace ddprun
