// Creates a simulated host from namespaces, and runs programs in it.
//
//   host_tool boot FD NAME ETC
//       Creates host NAME with its own network, host name, mount, pid and IPC namespaces. On the host,
//       /etc/hosts and /etc/resolv.conf are ETC/hosts and ETC/resolv.conf, and /dev/shm is empty.
//   host_tool enter FD PID KINDS PROGRAM...
//       Runs PROGRAM in those namespaces of process PID that KINDS lists, for example "net,uts,mnt,pid".
//
// Both commands create one process as a child of the caller, write its pid on one line to FD, and exit. With
// `boot` the process is pid 1 of the host, which reaps orphans like an init. With `enter` it is PROGRAM. The
// kernel kills the process when the caller ends. An error is reported as a line on FD that begins with
// "error: ". FD is closed when the host is ready or PROGRAM runs.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

int report_fd = -1;

// Writes a line to FD. Returns false if the reader has closed its end.
bool Report(const std::string& line) {
  return write(report_fd, (line + "\n").data(), line.size() + 1) == static_cast<ssize_t>(line.size() + 1);
}

void Require(bool good, const std::string& what) {
  if (good) return;
  const std::string why = strerror(errno);
  Report("error: " + what + ": " + why);
  _exit(1);
}

// Like fork, but the child is a sibling of this process, and the fork handlers of the C library do not run.
// It is safe to skip them because this process has only one thread.
pid_t ForkSibling() {
  const long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  Require(pid >= 0, "clone");
  if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  return static_cast<pid_t>(pid);
}

void Bind(const std::string& file, const std::string& over) {
  Require(mount(file.c_str(), over.c_str(), nullptr, MS_BIND, nullptr) == 0, "mount over " + over);
}

[[noreturn]] void BeInit(const std::string& name, const std::string& etc) {
  Require(sethostname(name.data(), name.size()) == 0, "sethostname");
  Require(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
  Require(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0, "mount /proc");
  Require(mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) == 0, "mount /dev/shm");
  Bind(etc + "/hosts", "/etc/hosts");
  if (access("/etc/resolv.conf", F_OK) == 0) Bind(etc + "/resolv.conf", "/etc/resolv.conf");
  // sigwait requires that the signal is blocked.
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  // If the caller died before the parent-death signal was set, the write fails.
  if (!Report("ready")) _exit(1);
  close(report_fd);
  for (;;) {
    int signo;
    sigwait(&child, &signo);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

int Boot(const std::string& name, const std::string& etc) {
  Require(unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) == 0, "unshare");
  const pid_t pid = ForkSibling();
  if (pid == 0) BeInit(name, etc);
  Report(std::to_string(pid));
  return 0;
}

int Enter(const std::string& host, const std::string& kinds, char** argv) {
  // All namespaces are opened before the first setns, because setns may change /proc.
  std::vector<std::pair<std::string, int>> namespaces;
  std::istringstream list(kinds);
  for (std::string kind; std::getline(list, kind, ',');) {
    const std::string path = "/proc/" + host + "/ns/" + kind;
    namespaces.emplace_back(path, open(path.c_str(), O_RDONLY | O_CLOEXEC));
    Require(namespaces.back().second >= 0, path);
  }
  char cwd[4096];
  Require(getcwd(cwd, sizeof cwd) != nullptr, "getcwd");
  for (const auto& [path, fd] : namespaces) Require(setns(fd, 0) == 0, "setns " + path);
  Require(chdir(cwd) == 0, cwd);  // setns to the mount namespace has changed the working directory
  const pid_t pid = ForkSibling();
  if (pid == 0) {
    fcntl(report_fd, F_SETFD, FD_CLOEXEC);
    if (!Report("ready")) _exit(1);
    signal(SIGPIPE, SIG_DFL);  // an ignored signal would be inherited
    execv(argv[0], argv);
    Require(false, argv[0]);
  }
  Report(std::to_string(pid));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const std::string mode = argc > 2 ? argv[1] : "";
  if (argc > 2) report_fd = std::atoi(argv[2]);
  // LeakSanitizer, which exit() runs, would wait forever for its tracer, a process of the new PID namespace.
  if (mode == "boot" && argc == 5) _exit(Boot(argv[3], argv[4]));
  if (mode == "enter" && argc >= 6) _exit(Enter(argv[3], argv[4], argv + 5));
  std::fprintf(stderr, "usage: host_tool boot FD NAME ETC | host_tool enter FD PID KINDS PROGRAM...\n");
  return 2;
}
