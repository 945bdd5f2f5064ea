// A file that makes processes unkillable: open() blocks, and a fatal signal only moves the process to
// uninterruptible sleep (state D). A network file system whose server is down has the same effect.
// Implemented as a FUSE file system whose server never answers an open request.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "os/descriptor.h"

namespace ddprun {

// The destructor calls Release(). When this process ends for any reason, the effect is the same. The file is
// visible only to this process and to processes that it starts after Create (see UseOwnMounts).
//   Create the file before a FakeAgent or any other object that kills this process's children. The file's
//   server is a child of this process, and such an object does not kill children that are older than itself.
class HangingFile {
 public:
  // Creates the file below `dir`, which must exist.
  //   Errors: this machine does not permit it, usually because this process is not root. Tests pass the error
  //           to GTEST_SKIP.
  static absl::StatusOr<std::unique_ptr<HangingFile>> Create(const std::string& dir);

  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() { Release(); }

  const std::string& path() const { return path_; }

  // Waits until a process hangs in open(). Each call waits for one more process. Returns false if none hangs
  // within `limit`.
  bool AwaitOneThatHangs(Duration limit);

  // Unblocks all hanging processes. Processes that were killed end; in all other processes, open() fails.
  // Also removes the file.
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
  UniqueFd hung_;  // receives one byte for each process that hangs
};

}  // namespace ddprun
