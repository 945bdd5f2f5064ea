#include "launcher/stacks/tool_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace ddprun {
namespace {

constexpr int kExecFailed = 127;

// Tools that had not ended when their object was destroyed.
class Unreaped {
 public:
  void Add(pid_t pid) {
    const std::lock_guard lock(mutex_);
    pids_.push_back(pid);
  }
  void Reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(pids_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
  }

 private:
  std::mutex mutex_;
  std::vector<pid_t> pids_;
};

Unreaped& TheUnreaped() {
  static Unreaped* const unreaped = new Unreaped;  // never destroyed: a background thread may outlive main()
  return *unreaped;
}

// Pointers to the strings, and a null pointer.
std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The descriptor, or a copy of it that is > 2, so that dup2() to 0, 1 or 2 does not overwrite it.
UniqueFd AboveStdio(UniqueFd fd) {
  return fd.get() > 2 ? std::move(fd) : UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
}

// In the child, after fork: only async-signal-safe calls. All signals are blocked.
[[noreturn]] void BecomeTool(const char* file, char* const* argv, char* const* env, int null, int output,
                             pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);  // this process ended before PR_SET_PDEATHSIG took effect
  setpgid(0, 0);
  if (dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) _exit(kExecFailed);
  CloseFrom(3);
  // gdb may use a gigabyte. If memory runs out, the kernel should kill it before a worker.
  if (const int score = open("/proc/self/oom_score_adj", O_WRONLY); score >= 0) {
    [[maybe_unused]] const ssize_t n = write(score, "1000", 4);
    close(score);
  }
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  // Ignore errors: sigaction() fails for SIGKILL, SIGSTOP and the signals that the C library reserves.
  for (int signo = 1; signo <= SIGRTMAX; ++signo) sigaction(signo, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(kExecFailed);
  execve(file, argv, env);
  _exit(kExecFailed);
}

}  // namespace

ToolProcess::ToolProcess(const ToolCommand& command, size_t max_output) : max_output_(max_output) {
  TheUnreaped().Reap();
  Start(command);
  if (pid_ < 0) ended_ = true;
}

void ToolProcess::Start(const ToolCommand& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    start_error_ = errno;
    return;
  }
  output_fd_.Reset(ends[0]);
  const UniqueFd to_us = AboveStdio(UniqueFd(ends[1]));
  const UniqueFd null = AboveStdio(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  if (!to_us || !null || fcntl(output_fd_.get(), F_SETFL, O_NONBLOCK) != 0) {
    start_error_ = errno;
    output_fd_.Reset();
    return;
  }
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> env = Pointers(command.env);
  const pid_t parent = getpid();
  // Signals are blocked so that no handler of this process runs in the child.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Like fork(), but without the handlers of pthread_atfork(), which gRPC may have installed. Not vfork(): exec may block for as long as
  // a file system does.
  const auto pid = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (pid == 0) BecomeTool(command.file.c_str(), argv.data(), env.data(), null.get(), to_us.get(), parent);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    start_error_ = error;
    output_fd_.Reset();
    return;
  }
  setpgid(pid,
          pid);  // also here, so that Kill() finds the group; fails after exec, when the child has done it
  pid_ = pid;
}

ToolProcess::~ToolProcess() {
  if (ended_) return;
  Kill();
  if (!Poll()) TheUnreaped().Add(pid_);
}

void ToolProcess::Read() {
  char buffer[16 << 10];
  while (output_fd_) {
    const ssize_t n = read(output_fd_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      output_fd_.Reset();
      return;
    }
    const size_t size = std::min(static_cast<size_t>(n), max_output_ - output_.size());
    output_.append(buffer, size);
    if (size < static_cast<size_t>(n)) {
      too_much_output_ = true;
      output_fd_.Reset();
      Kill();
    }
  }
}

bool ToolProcess::Poll() {
  if (ended_) return true;
  Read();
  siginfo_t info = {};
  // The tool stays a zombie until its group is killed, so that the number of the group is not used again.
  const int result = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (result == 0 && info.si_pid == 0) return false;
  if (result != 0 && errno == EINTR) return false;
  ended_ = true;
  if (result == 0) {
    Read();
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }  // else another part of the program has reaped it, or SIGCHLD is ignored
  output_fd_.Reset();
  return true;
}

void ToolProcess::Kill() {
  if (ended_) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // if it has no group of its own yet
}

}  // namespace ddprun
