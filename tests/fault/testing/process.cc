#include "tests/fault/testing/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>

namespace ddprun {
namespace {

void Require(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::abort();
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string NewMark() {
  static int count = 0;
  return "DDPRUN_FAULT_TEST=" + std::to_string(getpid()) + "." + std::to_string(++count);
}

std::string Env(const char* name, const char* fallback) {
  const char* value = getenv(name);
  return value == nullptr ? fallback : value;
}

int MillisUntil(TimePoint deadline) {
  return static_cast<int>(std::max<int64_t>(0, ToMillis(deadline - std::chrono::steady_clock::now())));
}

void Close(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

// Reads the pid that host_tool writes to `fd`.
pid_t ReportedPid(pid_t tool, int fd) {
  std::string said;
  char bytes[512];
  for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) != 0;) {
    if (n > 0) said.append(bytes, n);
  }
  Require(waitpid(tool, nullptr, 0) == tool, "waitpid");
  pid_t pid = 0;
  bool good = true;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("error: ")) good = false;
    if (std::isdigit(static_cast<unsigned char>(line[0]))) pid = std::stoi(line);
  }
  if (pid == 0 || !good) {
    std::fprintf(stderr, "host_tool: %s\n", said.c_str());
    std::abort();
  }
  return pid;
}

// All objects of Process, for Pump.
std::set<Process*>& AllProcesses() {
  static auto& everyone = *new std::set<Process*>;
  return everyone;
}

// RAII for the attributes and file actions of posix_spawn.
class Spawner {
 public:
  Spawner() {
    Require(posix_spawn_file_actions_init(&actions_) == 0, "posix_spawn_file_actions_init");
    Require(posix_spawnattr_init(&attributes_) == 0, "posix_spawnattr_init");
  }
  ~Spawner() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  void Take(int fd, int as) { Require(posix_spawn_file_actions_adddup2(&actions_, fd, as) == 0, "adddup2"); }
  void Open(const std::string& path, int as) {
    Require(posix_spawn_file_actions_addopen(&actions_, as, path.c_str(), O_RDWR, 0) == 0, "addopen");
  }
  void OwnSession() { Require(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID) == 0, "setflags"); }
  pid_t Run(const std::vector<std::string>& argv, const std::vector<std::string>& env) {
    pid_t pid = -1;
    errno = posix_spawn(&pid, argv[0].c_str(), &actions_, &attributes_, Pointers(argv).data(),
                        Pointers(env).data());
    Require(errno == 0, argv[0].c_str());
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Process::Process(const std::vector<std::string>& argv, Stdio stdio, const Environment& more, Birth birth)
    : mark_(NewMark()) {
  std::vector<std::string> env = {mark_, "PATH=" + Env("PATH", "/usr/bin:/bin"),
                                  "TMPDIR=" + Env("TEST_TMPDIR", "/tmp"), "OMP_NUM_THREADS=1"};
  for (const auto& [name, value] : more) env.push_back(name + "=" + value);
  Spawner spawner;
  int told[2];
  if (birth == Birth::kReported) Require(pipe2(told, O_CLOEXEC) == 0, "pipe2");
  if (stdio == Stdio::kTerminal) {
    out_.fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    Require(out_.fd >= 0 && grantpt(out_.fd) == 0 && unlockpt(out_.fd) == 0, "posix_openpt");
    // The first terminal that a session leader opens becomes its controlling terminal.
    spawner.OwnSession();
    spawner.Open(ptsname(out_.fd), STDIN_FILENO);
    spawner.Take(STDIN_FILENO, STDOUT_FILENO);
    spawner.Take(STDIN_FILENO, STDERR_FILENO);
    if (birth == Birth::kReported) spawner.Take(told[1], 3);
    pid_ = spawner.Run(argv, env);
  } else {
    int out[2], err[2];
    Require(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, "pipe2");
    spawner.Open("/dev/null", STDIN_FILENO);
    spawner.Take(out[1], STDOUT_FILENO);
    spawner.Take(err[1], STDERR_FILENO);
    if (birth == Birth::kReported) spawner.Take(told[1], 3);  // last, as earlier actions may use descriptor 3
    pid_ = spawner.Run(argv, env);
    close(out[1]);
    close(err[1]);
    out_.fd = out[0];
    err_.fd = err[0];
  }
  if (birth == Birth::kReported) {
    close(told[1]);
    pid_ = ReportedPid(pid_, told[0]);
    close(told[0]);
  }
  for (const Stream* stream : {&out_, &err_}) {
    if (stream->fd >= 0) Require(fcntl(stream->fd, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
  }
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  Require(pidfd_ >= 0, "pidfd_open");
  AllProcesses().insert(this);
}

Process::~Process() {
  AllProcesses().erase(this);
  if (!Collect()) {
    kill(pid_, SIGKILL);
    Wait(seconds(60));  // the init of a host exits after all other processes of the host
    Require(end_.has_value(), "a killed process did not exit");
  }
  for (int* fd : {&pidfd_, &out_.fd, &err_.fd}) Close(*fd);
}

bool Process::Collect() {
  if (end_) return true;
  int status;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  Require(ended >= 0, "waitpid");
  if (ended == 0) return false;
  end_ = WIFEXITED(status) ? ProcessEnd{.code = WEXITSTATUS(status)} : ProcessEnd{.signal = WTERMSIG(status)};
  Read(out_);
  Read(err_);
  return true;
}

void Process::Read(Stream& stream) {
  while (stream.fd >= 0) {
    char bytes[4096];
    const ssize_t n = read(stream.fd, bytes, sizeof bytes);
    if (n > 0) {
      stream.text.append(bytes, n);
      stream.read_at[stream.text.size()] = std::chrono::steady_clock::now();
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    } else {
      Close(stream.fd);  // EIO: the terminal is closed on the other side
    }
  }
}

bool Process::Pump(TimePoint deadline, const Stream* wanted) {
  const auto is_read = [wanted](const Stream& stream) { return !stream.held || &stream == wanted; };
  for (;;) {
    std::vector<pollfd> fds;
    const auto add = [&](const Process& process) {
      fds.push_back({process.end_ ? -1 : process.pidfd_, POLLIN, 0});  // poll() ignores -1
      for (const Stream* stream : {&process.out_, &process.err_})
        fds.push_back({is_read(*stream) ? stream->fd : -1, POLLIN, 0});
    };
    add(*this);
    for (const Process* other : AllProcesses()) {
      if (other != this) add(*other);
    }
    if (poll(fds.data(), fds.size(), MillisUntil(deadline)) <= 0) return false;
    // Reads from the other processes as well, but only an event of this process ends the wait.
    for (Process* other : AllProcesses()) {
      if (other == this) continue;
      for (Stream* stream : {&other->out_, &other->err_}) {
        if (is_read(*stream)) Read(*stream);
      }
      other->Collect();
    }
    if (fds[0].revents != 0 || fds[1].revents != 0 || fds[2].revents != 0) break;
    if (MillisUntil(deadline) == 0) return false;
  }
  for (Stream* stream : {&out_, &err_}) {
    if (is_read(*stream)) Read(*stream);
  }
  return true;
}

std::vector<std::string> Process::Await(Stream& stream, const std::string& part, size_t count,
                                        Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<std::string> found;
  while (found.size() < count) {
    const size_t end = stream.text.find('\n', stream.used);
    if (end == std::string::npos) {
      // When end_ is set, all of the process's output has been read.
      if (end_ || !Pump(deadline, &stream)) return found;
      if (stream.text.find('\n', stream.used) == std::string::npos && Wait(Duration::zero())) return found;
      continue;
    }
    std::string line = stream.text.substr(stream.used, end - stream.used);
    stream.used = end + 1;
    if (line.find(part) == std::string::npos) continue;
    found_at_ = stream.read_at.lower_bound(stream.used)->second;
    found.push_back(std::move(line));
  }
  return found;
}

std::vector<std::string> Process::AwaitOut(const std::string& part, size_t count, Duration timeout) {
  return Await(out_, part, count, timeout);
}
std::vector<std::string> Process::AwaitErr(const std::string& part, size_t count, Duration timeout) {
  return Await(err_, part, count, timeout);
}

std::optional<ProcessEnd> Process::Wait(Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  while (!Collect()) {
    if (!Pump(deadline)) return std::nullopt;
  }
  return end_;
}

void Process::Signal(int signo) { Require(kill(pid_, signo) == 0, "kill"); }

void Process::Type(const std::string& keys) {
  Require(write(out_.fd, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()), "terminal");
}

void Process::HoldOut() {
  out_.held = true;
  // EBUSY: a pipe cannot shrink below the data in it.
  while (fcntl(out_.fd, F_SETPIPE_SZ, 4096) < 0) {
    Require(errno == EBUSY, "F_SETPIPE_SZ");
    Read(out_);
  }
}

void Process::FreeOut() { out_.held = false; }

void Process::CloseTerminal() {
  Read(out_);
  Close(out_.fd);
}

}  // namespace ddprun
