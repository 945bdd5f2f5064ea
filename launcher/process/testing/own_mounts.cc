#include "launcher/process/testing/own_mounts.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

namespace ddprun {

absl::Status UseOwnMounts() {
  static pid_t process = 0;  // the one that `error` is about; a forked child needs mounts of its own
  static int error = 0;
  if (process != getpid()) {
    process = getpid();
    const bool done =
        unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    error = done ? 0 : errno;
  }
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot create a mount namespace");
}

}  // namespace ddprun
