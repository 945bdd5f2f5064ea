#include "launcher/process/testing/lacking.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/own_mounts.h"

namespace ddprun {
namespace {

absl::Status Install(std::vector<sock_filter> program) {
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    return absl::ErrnoToStatus(errno, "cannot install a seccomp filter");
  }
  return absl::OkStatus();
}

constexpr sock_filter kLoadNumber = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

sock_filter Fail(int error) {
  return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error));
}

}  // namespace

std::vector<int> CallNumbers(const std::vector<std::string>& names) {
  static const std::map<std::string, int> kNumbers = {{"close_range", 436},
                                                      {"epoll_create1", SYS_epoll_create1},
                                                      {"memfd_create", SYS_memfd_create},
                                                      {"pidfd_open", 434},
                                                      {"pidfd_send_signal", 424},
                                                      {"signalfd4", SYS_signalfd4},
                                                      {"timerfd_create", SYS_timerfd_create}};
  std::vector<int> numbers;
  for (const std::string& name : names) {
    if (kNumbers.count(name) == 0) {
      std::fprintf(stderr, "unknown system call: %s\n", name.c_str());
      std::abort();
    }
    numbers.push_back(kNumbers.at(name));
  }
  return numbers;
}

absl::Status RefuseCalls(const std::vector<int>& calls, int error) {
  std::vector<sock_filter> program = {kLoadNumber};
  for (const int call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(Fail(error));
  }
  program.push_back(kAllow);
  return Install(std::move(program));
}

absl::Status RefuseCallsAfter(int last) {
  return Install({kLoadNumber, BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, static_cast<unsigned>(last), 0, 1),
                  Fail(ENOSYS), kAllow});
}

absl::Status UnmountProc() {
  RETURN_IF_ERROR(UseOwnMounts());
  // /proc may be mounted more than once, and other file systems may be mounted below it.
  int unmounted = 0;
  while (umount2("/proc", MNT_DETACH) == 0) ++unmounted;
  return unmounted > 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "cannot unmount /proc");
}

void InChild(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child process has failed; see its output above";
}

}  // namespace ddprun
