#include "launcher/process/worker_start.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using warden_protocol::StartStage;

constexpr int kResult = 3;  // the child's descriptor for the pipe that carries a StartFailure

[[noreturn]] void Fail(int pipe, StartStage stage) {
  const StartFailure failure = {.stage = stage, .error = errno};
  // The message is smaller than PIPE_BUF, so the write is atomic. If the write fails, the worker counts as
  // started and exits with 127.
  [[maybe_unused]] const ssize_t n = write(pipe, &failure, sizeof failure);
  _exit(127);
}

void ResetSignals(uint64_t ignored) {
  struct sigaction action = {};
  // Ignore errors: sigaction() fails for SIGKILL, SIGSTOP and the signals that the C library reserves.
  for (int signo = 1; signo <= SIGRTMAX; ++signo) {
    action.sa_handler = signo < 64 && (ignored >> signo & 1) != 0 ? SIG_IGN : SIG_DFL;
    sigaction(signo, &action, nullptr);
  }
}

[[noreturn]] void BecomeWorker(const WorkerCommand& command, int pipe, pid_t warden, pid_t agent) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != warden) _exit(127);  // the warden ended before PR_SET_PDEATHSIG took effect
  // With Yama, only ancestors may look at the stacks of a process. The agent's tools are its children. Fails without Yama.
  prctl(PR_SET_PTRACER, agent);
  for (int fd = 0; fd < 3; ++fd) {
    if (dup2(command.stdio[fd], fd) < 0) Fail(pipe, StartStage::kReceive);
  }
  if (pipe != kResult) {
    if (dup3(pipe, kResult, O_CLOEXEC) < 0) Fail(pipe, StartStage::kReceive);
    pipe = kResult;
  }
  CloseFrom(kResult + 1);
  const char* const slash = std::strrchr(command.file, '/');
  prctl(PR_SET_NAME, slash == nullptr ? command.file : slash + 1);
  ResetSignals(command.ignored);
  if (command.files != nullptr) setrlimit(RLIMIT_NOFILE, command.files);
  if (command.cpus != nullptr && sched_setaffinity(0, sizeof(cpu_set_t), command.cpus) != 0) {
    Fail(pipe, StartStage::kAffinity);
  }
  if (command.cwd[0] != '\0' && chdir(command.cwd) != 0) Fail(pipe, StartStage::kDirectory);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(command.file, command.argv, command.env);
  Fail(pipe, StartStage::kExec);
}

}  // namespace

StartingWorker StartWorker(const WorkerCommand& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {.error = errno};
  UniqueFd result(ends[0]);
  UniqueFd to_us(ends[1]);
  const pid_t warden = getpid();
  const pid_t agent = getppid();
  const pid_t pid = fork();
  if (pid < 0) return {.error = errno};
  if (pid == 0) BecomeWorker(command, to_us.get(), warden, agent);
  return {.pid = pid, .exec_result = std::move(result)};
}

StartState ReadStartResult(int exec_result, StartFailure& failure) {
  const ssize_t n = read(exec_result, &failure, sizeof failure);
  if (n == static_cast<ssize_t>(sizeof failure)) return StartState::kFailed;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return StartState::kPending;
  return StartState::kRunning;  // end of file: exec has succeeded, or the worker was killed
}

namespace {

using warden_protocol::StartStage;

std::string ErrorText(int error) {
  switch (error) {
    case EAGAIN:
      return "too many processes: see ulimit -u, or the pids limit of the container";
    case EMFILE:
    case ENFILE:
      return "too many open files: see ulimit -n";
    case E2BIG:
      return "the arguments and the environment exceed the system's size limit";
    default:
      return std::strerror(error);
  }
}

absl::StatusCode Code(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case ENOEXEC:
    case E2BIG:
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case ECANCELED:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string ExecText(int error, const std::string& program, absl::string_view cwd) {
  const std::string path =
      absl::StartsWith(program, "/") || cwd.empty() ? program : absl::StrCat(cwd, "/", program);
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  if (error == ENOENT && exists) {
    return "the file exists, but its interpreter does not: check its #! line (or its loader)";
  }
  if (error == ENOENT) return "no such file";
  if (error == EACCES && exists && S_ISDIR(info.st_mode)) return "it is a directory, not a program";
  if (error == EACCES && exists && access(path.c_str(), X_OK) != 0) {
    return absl::StrCat("permission denied: is it executable? (chmod +x ", path, ")");
  }
  if (error == EACCES) {
    return "permission denied: check the directories of its path, its interpreter, and noexec mounts";
  }
  if (error == ENOEXEC) {
    return "exec format error: neither a program for this machine nor a script that begins with #!";
  }
  if (error == ETXTBSY) return "text file busy: another process has it open for writing";
  return ErrorText(error);
}

}  // namespace

absl::Status StartError(StartStage stage, int error, absl::string_view program, absl::string_view cwd) {
  const auto make = [&](const auto&... text) {
    return absl::Status(Code(error), absl::StrCat("cannot start ", program, ": ", text...));
  };
  switch (stage) {
    case StartStage::kReceive:
      return make("its descriptors could not be passed: ", ErrorText(error));
    case StartStage::kFork:
      if (error == ECANCELED) return make("all workers are being killed, or this node has lost its lease");
      return make("fork: ", ErrorText(error));
    case StartStage::kAffinity:
      return make("none of the requested processors may be used: see taskset -p ", getpid());
    case StartStage::kDirectory:
      return make("working directory ", cwd, ": ", ErrorText(error));
    case StartStage::kExec:
      return make(ExecText(error, std::string(program), cwd));
  }
  return make(ErrorText(error));
}

}  // namespace ddprun
