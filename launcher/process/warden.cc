#include "launcher/process/warden.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "launcher/process/process_tree.h"
#include "launcher/process/warden_loop.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

constexpr char kName[] = "ddp-warden";
constexpr int kSocket = 3;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "ddprun: error: cannot start the process that watches the workers: %s: %s%s\n", what,
               std::strerror(errno), errno == EMFILE ? ": raise the limit of open files (ulimit -n)" : "");
  _exit(1);
}

// Overwrites the inherited command line, so that `ps` and `pkill -f` distinguish the warden from the agent.
void Rename() {
  prctl(PR_SET_NAME, kName);
  std::FILE* stat = std::fopen("/proc/self/stat", "re");
  if (stat == nullptr) return;
  char text[2048];
  const size_t n = std::fread(text, 1, sizeof text - 1, stat);
  std::fclose(stat);
  text[n] = '\0';
  // Field 3 follows the name; fields 48 and 49 are the start and end addresses of the arguments.
  char* field = std::strrchr(text, ')');
  for (int i = 2; field != nullptr && i < 48; ++i) field = std::strchr(field + 1, ' ');
  if (field == nullptr) return;
  const auto begin = std::strtoull(field, &field, 10);
  const auto end = std::strtoull(field, nullptr, 10);
  if (begin == 0 || end <= begin) return;
  char* const args = reinterpret_cast<char*>(begin);
  std::memset(args, 0, end - begin);
  std::memcpy(args, kName, std::min<size_t>(end - begin - 1, sizeof kName - 1));
}

// Raises the warden's limit on open files, because the warden needs descriptors for each worker. Returns the
// original limit, which applies to the workers.
rlimit RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) Die("getrlimit");
  const rlimit most = {.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &most);
  return files;
}

[[noreturn]] void BecomeWarden(int socket) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The socket alone does not show that the agent has died: while a thread of a killed agent is in state D,
  // the agent's end of the socket stays open.
  prctl(PR_SET_PDEATHSIG, kAgentDied);
  // The caller may have set SIGCHLD to SIG_IGN. The kernel would then reap children automatically.
  signal(SIGCHLD, SIG_DFL);
  Rename();
  const rlimit worker_files = RaiseFileLimit();
  if (dup2(socket, kSocket) < 0) Die("dup2");
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  CloseFrom(kSocket + 1);
  sigset_t chld;
  sigemptyset(&chld);
  sigaddset(&chld, SIGCHLD);
  sigaddset(&chld, kAgentDied);
  WardenResources resources = {
      .socket = UniqueFd(kSocket),
      .sigchld = UniqueFd(signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK)),
      .fence_timer = UniqueFd(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      .ends = UniqueFd(epoll_create1(EPOLL_CLOEXEC)),
      .worker_files = worker_files};
  if (!resources.sigchld) Die("signalfd");
  if (!resources.fence_timer) Die("timerfd_create");
  if (!resources.ends) Die("epoll_create1");
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) Die("/dev/null");
  for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
  close(null);
  RunWarden(std::move(resources));
}

}  // namespace

WardenHandle StartWarden() {
  // Open /dev/null in place of any closed standard descriptors. Otherwise our own descriptors would get the
  // numbers 0 to 2.
  int fd;
  while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < 3) fcntl(fd, F_SETFD, 0);
  if (fd >= 0) close(fd);

  WardenHandle handle = {.foreign_children = ChildrenOfThisProcess()};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) Die("socketpair");
  handle.socket.Reset(ends[0]);
  UniqueFd theirs(ends[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  handle.pid = fork();
  if (handle.pid < 0) Die("fork");
  if (handle.pid == 0) {
    handle.socket.Reset();
    BecomeWarden(theirs.get());
  }
  return handle;
}

}  // namespace ddprun
