// A file that makes processes unkillable: open() blocks forever in uninterruptible sleep (state D), as on a
// network file system whose server is down. A FUSE file system whose server never answers the request.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "os/descriptor.h"

namespace ddprun {

// Released and unmounted by the destructor, or when this process ends by any cause. Visible only to this
// process and those that it starts afterwards (UseOwnMounts).
//   Create it before a FakeAgent or any other owner of this process's children, which would kill its server.
class HangingFile {
 public:
  // Below `dir`, which must exist.
  //   Errors: why this machine does not allow it, for GTEST_SKIP; usually, this process is not root.
  static absl::StatusOr<std::unique_ptr<HangingFile>> Create(const std::string& dir);

  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() { Release(); }

  const std::string& path() const { return path_; }

  // Waits for one more process to hang than earlier calls have reported. False: none within `limit`.
  bool AwaitOneThatHangs(Duration limit);

  // Unblocks all of them: those that were killed end, the others get an error from open(). The file does not
  // exist afterwards.
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
