#include "worker_sdk/snapshot/testing/directory_errors.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <thread>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// The low half of the third argument of openat(), its flags.
constexpr unsigned kFlags = offsetof(seccomp_data, args) + 2 * sizeof(seccomp_data::args[0]);

void RefuseDirectories() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECTORY, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(program), .filter = program};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

}  // namespace

void WithDirectoryErrors(const std::function<void()>& body) {
  std::thread([&body] {
    RefuseDirectories();  // for this thread only
    if (!testing::Test::HasFatalFailure()) body();
  }).join();
}

}  // namespace ddprun
