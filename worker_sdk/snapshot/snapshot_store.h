// The snapshots of a job in one directory, each a file that is there as a whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "worker_sdk/snapshot/claim.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// A snapshot read from a file and found whole.
struct StoredSnapshot {
  std::string name;    // of the file, without the directory
  std::string sha256;  // ParsedSnapshot's
  Snapshot snapshot;   // its tensors look into `bytes`
  std::string bytes;   // the whole file; too long to move when the string does

  StoredSnapshot() = default;
  StoredSnapshot(StoredSnapshot&&) = default;
  StoredSnapshot& operator=(StoredSnapshot&&) = default;
};

struct SkippedSnapshot {
  std::string path;
  absl::Status reason;
};

struct FoundSnapshot {
  std::optional<StoredSnapshot> newest;  // none: there is no whole one
  std::vector<SkippedSnapshot> skipped;  // newer ones that are not whole, the newest first
};

// One process of a round, rank 0, writes; any number read. A writer of an old round that wakes up late is
// refused: claim.h.
// What takes long tells its progress.
//   Errors: name the file.
//   Threads: any number of callers, Write excepted: one at a time.
class SnapshotStore {
 public:
  // Keeps the newest `keep` >= 1 snapshots.
  explicit SnapshotStore(std::string directory, int keep = 3);

  // For the writer, before the workers of its round meet. Makes the directory where it is missing, notes who
  // writes there, and proves that it can be written to.
  //   Errors: kResourceExhausted: the disk is full; going on is possible. kPermissionDenied and others: as
  //           the system says.
  absl::Status Prepare();

  // For the writer, when they have met: from here on this process writes, for `round` of job `run_id`.
  //   REQUIRES: Prepare() was OK, or kResourceExhausted.
  //   Errors: kAborted: a newer round has taken over since Prepare(): this worker should end.
  //           kResourceExhausted: the disk is full; Write will try again.
  absl::Status TakeOver(absl::string_view run_id, Round round);

  // Writes a snapshot, and then removes those of the same step by other rounds and all but the newest `keep`
  // of those up to this step: never this one, so that there always is a whole one, and never those of a later
  // writer, even if this one has not heard of it yet.
  //   REQUIRES: TakeOver() was called, with the round of `snapshot`.
  //   Errors: kResourceExhausted: the disk is full; kAborted: a newer round has taken over: this worker
  //           should end. After any error the snapshots that were there still are.
  absl::Status Write(const Snapshot& snapshot, const ByteProgress& progress = nullptr);

  // The snapshot of the highest step that is whole, of two with one step the one of the higher round.
  //   Errors: the directory cannot be listed. A directory that is missing is an empty one.
  [[nodiscard]] absl::StatusOr<FoundSnapshot> FindNewest(const ByteProgress& progress = nullptr) const;

  // Reads and checks one file.
  //   Errors: kNotFound; kDataLoss: torn, damaged, or of another step than its name says.
  [[nodiscard]] absl::StatusOr<StoredSnapshot> Load(const std::string& name,
                                                    const ByteProgress& progress = nullptr) const;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Called whenever it has been found that the directory still is this writer's, before that is relied on.
  void SetAfterCheckForTest(std::function<void()> call) { after_check_for_test_ = std::move(call); }
  // "snapshot-000000000040-r7.ddp"
  static std::string NameOf(int64_t step, Round round);

 private:
  absl::Status TakeOver();
  // OK: no newer writer has taken over.
  absl::Status StillOurs() const;
  absl::Status RemoveOld(const Snapshot& newest);

  const std::string directory_;
  const int keep_;
  DirectoryClaim claim_;
  std::string run_id_;
  std::optional<Round> round_;  // none: TakeOver was not called
  bool taken_ = false;
  // Names that no later writer has given: of the files that were there when this process took over, and of
  // its own.
  std::set<std::string> removable_;
  std::function<void()> after_check_for_test_;
};

}  // namespace ddprun
