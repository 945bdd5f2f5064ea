// Ownership of a directory that all rounds of a job share. Only the writer that took ownership last may write
// to the directory.
//
//   RETURN_IF_ERROR(claim.Look());                   // before the workers of the round connect
//   ... they connect ...
//   RETURN_IF_ERROR(claim.Take("job1", Round(4)));   // from here on, older writers are refused
//   ... claim.Check() right before each change that becomes visible in the directory ...
//
// A worker of an old round may resume late, after its host was suspended or its storage hung. Round numbers
// do not order writers, because a job that is started again begins with round 0. Therefore a file in the
// directory, which is replaced atomically, names the owner. A writer that finds another owner in the file has
// lost the directory permanently.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

//   Errors:  kAborted: another writer, named in the message, has taken over. All other errors name the file.
//   Threads: one caller at a time.
//   Limits:  another writer may take over between Check and the caller's next system call. Storage whose
//            clients cache names (NFS) may show an old file until its caches expire.
class DirectoryClaim {
 public:
  // The file's name in the directory: docs/snapshot_format.md.
  static constexpr absl::string_view kFile = "claim";

  explicit DirectoryClaim(std::string directory) : directory_(std::move(directory)) {}

  // Notes the current owner of the directory.
  absl::Status Look();

  // Takes the directory for this process, the writer for `round` of job `run_id`.
  //   REQUIRES: Look() was OK.
  //   Errors: kAborted: another writer has taken the directory since Look(); kResourceExhausted: the disk is
  //           full. After an error the directory is not taken. A retry may succeed, except after kAborted.
  absl::Status Take(absl::string_view run_id, Round round);

  // OK: this process owns the directory, or the directory was emptied and has no owner.
  //   REQUIRES: Take() was OK.
  [[nodiscard]] absl::Status Check() const;

  // A string that is unique to this claim. REQUIRES: Take() was OK.
  [[nodiscard]] const std::string& nonce() const { return nonce_; }

 private:
  [[nodiscard]] absl::Status TakenOver(const std::string& by) const;

  const std::string directory_;
  std::string seen_;  // the file's bytes at Look(); empty if there was no file
  std::string mine_;
  std::string nonce_;
  std::string run_id_;
  Round round_{};
};

}  // namespace ddprun
