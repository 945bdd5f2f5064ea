#include "tests/train/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddprun {
namespace {

void Require(int error, const char* what) {
  if (error == 0) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
  std::abort();
}

struct Pipe {
  Pipe() { Require(pipe2(fds, O_CLOEXEC) == 0 ? 0 : errno, "pipe2"); }
  int fds[2];  // read, write
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

int MillisUntil(TimePoint deadline) {
  return static_cast<int>(std::max<int64_t>(0, ToMillis(deadline - std::chrono::steady_clock::now())));
}

void Close(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

}  // namespace

Child::Child(const std::vector<std::string>& argv, const Environment& environment) {
  Pipe in, out, err;
  posix_spawn_file_actions_t actions;
  Require(posix_spawn_file_actions_init(&actions), "posix_spawn");
  Require(posix_spawn_file_actions_adddup2(&actions, in.fds[0], STDIN_FILENO), "posix_spawn");
  Require(posix_spawn_file_actions_adddup2(&actions, out.fds[1], STDOUT_FILENO), "posix_spawn");
  Require(posix_spawn_file_actions_adddup2(&actions, err.fds[1], STDERR_FILENO), "posix_spawn");
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  Require(posix_spawn(&pid_, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                      Pointers(variables).data()),
          argv[0].c_str());
  posix_spawn_file_actions_destroy(&actions);
  close(in.fds[0]);
  close(out.fds[1]);
  close(err.fds[1]);
  in_ = in.fds[1];
  out_.fd = out.fds[0];
  err_.fd = err.fds[0];
}

Child::~Child() {
  if (!end_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (int* fd : {&in_, &out_.fd, &err_.fd}) Close(*fd);
}

bool Child::Pump(TimePoint deadline) {
  pollfd fds[2] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}};  // poll() ignores a negative fd
  if (out_.fd < 0 && err_.fd < 0) return false;
  if (poll(fds, 2, MillisUntil(deadline)) <= 0) return false;
  Stream* const streams[2] = {&out_, &err_};
  for (int i = 0; i < 2; ++i) {
    if (fds[i].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = read(fds[i].fd, bytes, sizeof(bytes));
    if (n > 0) {
      streams[i]->text.append(bytes, n);
    } else {
      Close(streams[i]->fd);
    }
  }
  return true;
}

std::optional<std::string> Child::AwaitLine(const std::string& part, Duration timeout) {
  return Await(out_, part, timeout);
}

std::optional<std::string> Child::AwaitErrLine(const std::string& part, Duration timeout) {
  return Await(err_, part, timeout);
}

std::optional<std::string> Child::Await(Stream& stream, const std::string& part, Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const size_t end = stream.text.find('\n', stream.used);
    if (end == std::string::npos) {
      if (stream.fd < 0 || !Pump(deadline)) return std::nullopt;
      continue;
    }
    const std::string line = stream.text.substr(stream.used, end - stream.used);
    stream.used = end + 1;
    if (line.find(part) != std::string::npos) return line;
  }
}

std::optional<ChildEnd> Child::Wait(Duration timeout) {
  if (end_) return end_;
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  while (out_.fd >= 0 || err_.fd >= 0) {
    if (!Pump(deadline)) return std::nullopt;
  }
  int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  Require(pidfd >= 0 ? 0 : errno, "pidfd_open");
  pollfd ended{pidfd, POLLIN, 0};
  const bool in_time = poll(&ended, 1, MillisUntil(deadline)) == 1;
  Close(pidfd);
  if (!in_time) return std::nullopt;
  int status;
  Require(waitpid(pid_, &status, 0) == pid_ ? 0 : errno, "waitpid");
  end_ = WIFEXITED(status) ? ChildEnd{.code = WEXITSTATUS(status)} : ChildEnd{.signal = WTERMSIG(status)};
  return end_;
}

void Child::Signal(int signo) { Require(kill(pid_, signo) == 0 ? 0 : errno, "kill"); }

void Child::EndInput() { Close(in_); }

}  // namespace ddprun
