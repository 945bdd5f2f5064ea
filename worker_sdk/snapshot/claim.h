// Who may write to a directory that all rounds of a job share: the writer that took it last, and nobody else.
//
//   RETURN_IF_ERROR(claim.Look());                   // before the workers of the round meet
//   ... they meet ...
//   RETURN_IF_ERROR(claim.Take("job1", Round(4)));   // from here on, older writers are refused
//   ... claim.Check() right before something comes to be seen in the directory ...
//
// A worker of an old round may wake up late: its host was suspended, its storage hung. Rounds cannot be
// compared by number alone, for a job that is started again begins with round 0. So the directory itself
// says who holds it, in a file that is replaced as a whole; a writer that finds another one's name there has
// lost, for good.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ddprun {

//   Errors:  kAborted: somebody else has taken over, saying who; others name the file.
//   Threads: one caller at a time.
//   Limits:  between Check and what the caller does next another writer may come: two system calls. Storage
//            whose clients cache names (NFS) may show an old file for as long as it does so.
class DirectoryClaim {
 public:
  // The file's name in the directory: docs/snapshot_format.md.
  static constexpr absl::string_view kFile = "claim";

  explicit DirectoryClaim(std::string directory) : directory_(std::move(directory)) {}

  // Notes who holds the directory now.
  absl::Status Look();

  // Takes the directory for this process, writer of `round` of job `run_id`.
  //   REQUIRES: Look() was OK.
  //   Errors: kAborted: somebody took it since Look, so that this process is the one who came too late;
  //           kResourceExhausted: the disk is full. After an error it is not taken; but for kAborted another
  //           try may do.
  absl::Status Take(absl::string_view run_id, Round round);

  // OK: this process holds the directory, or nobody does because somebody emptied it.
  //   REQUIRES: Take() was OK.
  [[nodiscard]] absl::Status Check() const;

  // Of this process's claim: unlike that of any other. REQUIRES: Take() was OK.
  [[nodiscard]] const std::string& nonce() const { return nonce_; }

 private:
  [[nodiscard]] absl::Status TakenOver(const std::string& by) const;

  const std::string directory_;
  std::string seen_;  // by Look: the file's bytes; empty: there was none
  std::string mine_;
  std::string nonce_;
  std::string run_id_;
  Round round_{};
};

}  // namespace ddprun
