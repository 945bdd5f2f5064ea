// A file that makes processes unkillable: opening it never ends, in uninterruptible sleep (state D), as on a
// network file system whose server is gone. It is the kernel's FUSE, served by a process of ours that takes
// the request and never answers.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "os/unique_fd.h"

namespace ddprun {

// Released and unmounted by the destructor, and also when this process ends in any other way. Seen only by
// this process and those that it starts from then on (UseOwnMounts).
//   To be made before a FakeAgent or another owner of this process's children, or its server would be theirs.
class HangingFile {
 public:
  // Below `dir`, which must exist.
  //   Errors: why this machine does not allow it, for GTEST_SKIP; as a rule, not being root.
  static absl::StatusOr<std::unique_ptr<HangingFile>> Create(const std::string& dir);

  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() { Release(); }

  const std::string& path() const { return path_; }

  // True when one more process hangs than calls have returned true, within `limit`.
  bool AwaitOneThatHangs(Duration limit);

  // Lets all of them go: those that were killed meanwhile end, others get an error from open(). From then on
  // the file is not there.
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
  UniqueFd life_;  // closed: the server cleans up and ends
  UniqueFd hung_;  // a byte for each process that hangs
};

}  // namespace ddprun
