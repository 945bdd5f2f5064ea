#include "launcher/process/testing/own_mounts.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>

namespace ddprun {

absl::Status UseOwnMounts() {
  static const int error = [] {
    if (unshare(CLONE_NEWNS) != 0) return errno;
    return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : errno;
  }();
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot create a mount namespace");
}

}  // namespace ddprun
