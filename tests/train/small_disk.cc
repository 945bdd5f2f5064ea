#include "tests/train/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/train/job.h"

namespace ddprun {
namespace {

void Require(bool done, const std::string& what) {
  if (done) return;
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::abort();
}

// Moves this process into a new mount namespace. If that fails, typically for lack of
// privilege, also moves it into a new user namespace. Must be called at most once per process. Returns the
// reason for a failure; empty on success.
std::string MakeNamespace() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return std::string("cannot create a mount namespace: ") + std::strerror(errno);
    }
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << uid << " " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << gid << " " << gid << " 1";
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("cannot make mounts private: ") + std::strerror(errno);
  }
  return "";
}

}  // namespace

std::string SmallDisk::WhyNot() {
  static const std::string why = MakeNamespace();
  return why;
}

SmallDisk::SmallDisk(int64_t bytes) : path_(MakeTestDirectory()) {
  const std::string options = "size=" + std::to_string(bytes) + ",mode=700";
  Require(mount("small", path_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) == 0, path_);
}

SmallDisk::~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }

void SmallDisk::Fill() {
  const int fd = open(filler().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  Require(fd >= 0, filler());
  const std::string page(4096, 'x');
  while (write(fd, page.data(), page.size()) > 0) {
  }
  Require(errno == ENOSPC, filler());
  close(fd);
}

void SmallDisk::Free() { Require(unlink(filler().c_str()) == 0, filler()); }

}  // namespace ddprun
