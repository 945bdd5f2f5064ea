// Ownership of a directory that all rounds of a job share. Only the last writer that took ownership may
// write to the directory.
//
//   DDPRUN_RETURN_IF_ERROR(claim.Look());                   // before the workers of the round connect
//   ... the workers connect ...
//   DDPRUN_RETURN_IF_ERROR(claim.Take("job1", Round(4)));   // from now on, older writers are refused
//   ... claim.Check() right before each change that becomes visible in the directory ...
//
// A worker of an old round may resume late, after its host was suspended or its storage hung. Round numbers
// do not order writers, because a job that is started again begins with round 0. Instead, a file in the
// directory names the owner, and each new owner replaces this file atomically. A writer that finds another
// owner in the file has lost the directory permanently.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "ddprun/status.h"

namespace ddprun {

//   Errors:  kAborted: another writer, named in the message, has taken over. All other errors name the file.
//   Threads: one caller at a time.
//   Limits:  another writer may take over between Check and the caller's next system call. Storage whose
//            clients cache names (NFS) may show an old file until the caches expire.
class DirectoryClaim {
 public:
  // The name of the file in the directory; see docs/snapshot_format.md.
  static constexpr std::string_view kFile = "claim";

  explicit DirectoryClaim(std::string directory) : directory_(std::move(directory)) {}

  // Reads and remembers the current owner of the directory.
  Status Look();

  // Makes this process the owner of the directory, as the writer for `round` of job `run_id`.
  //   REQUIRES: Look() was OK. A retry passes the same arguments.
  //   Errors: kAborted: another writer has taken the directory since Look(); kResourceExhausted: the disk is
  //           full. After kAborted, this process is not the owner. After another error it may be the owner;
  //           a retry may succeed.
  Status Take(std::string_view run_id, Round round);

  // Returns OK if this process owns the directory, or if the directory was emptied and has no owner.
  //   REQUIRES: Take() was OK.
  [[nodiscard]] Status Check() const;

  // A string that is unique to this claim. REQUIRES: Take() was OK.
  [[nodiscard]] const std::string& nonce() const { return nonce_; }

 private:
  [[nodiscard]] Status TakenOver(const std::string& by) const;

  const std::string directory_;
  std::string seen_;  // the file's bytes at Look(); empty if there was no file
  std::string mine_;  // the bytes that Take() writes; empty before its first call
  std::string nonce_;
  std::string run_id_;
  Round round_{};
};

}  // namespace ddprun
