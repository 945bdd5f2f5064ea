// A file that makes processes unkillable: open() blocks in uninterruptible sleep (state D), as on a network
// file system whose server is down. Implemented as a FUSE file system whose server never answers an open.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "os/descriptor.h"

namespace ddprun {

// Released and unmounted by the destructor, or when this process ends for any reason. Visible only to this
// process and the processes that it starts after Create (see UseOwnMounts).
//   Create it before a FakeAgent or any other object that kills this process's children: its server is a
//   child of this process, and such an object spares only older children.
class HangingFile {
 public:
  // Creates the file below `dir`, which must exist.
  //   Errors: why this machine does not allow it, for GTEST_SKIP; usually because this process is not root.
  static absl::StatusOr<std::unique_ptr<HangingFile>> Create(const std::string& dir);

  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() { Release(); }

  const std::string& path() const { return path_; }

  // Waits until a process hangs that no earlier call has reported. Returns false if none does within `limit`.
  bool AwaitOneThatHangs(Duration limit);

  // Unblocks all hanging processes: those that were killed end; in the others, open() fails. Also removes
  // the file.
  void Release();

 private:
  HangingFile(std::string mount_point, pid_t server, UniqueFd life, UniqueFd hung)
      : mount_point_(std::move(mount_point)),
        path_(mount_point_ + "/file"),
        server_(server),
        life_(std::move(life)),
        hung_(std::move(hung)) {}

  const std::string mount_point_;
  const std::string path_;
  const pid_t server_;
  UniqueFd life_;  // when closed, the server cleans up and exits
  UniqueFd hung_;  // one byte per process that hangs
};

}  // namespace ddprun
