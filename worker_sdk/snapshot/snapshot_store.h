// The snapshots of a job, in one directory. Each snapshot is one file, which is either complete or absent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "ddprun/status.h"
#include "worker_sdk/snapshot/claim.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun {

// A snapshot that was read from a file and verified.
struct StoredSnapshot {
  std::string name;    // file name, without the directory
  std::string sha256;  // as in ParsedSnapshot
  Snapshot snapshot;   // its tensors are views of `bytes`
  std::string bytes;   // the whole file; on the heap, so that moving the string keeps views valid

  StoredSnapshot() = default;
  StoredSnapshot(StoredSnapshot&&) = default;
  StoredSnapshot& operator=(StoredSnapshot&&) = default;
};

struct SkippedSnapshot {
  std::string path;
  Status reason;
};

struct FoundSnapshot {
  std::optional<StoredSnapshot> newest;  // nullopt if there is no intact snapshot
  // Snapshots newer than `newest` that could not be loaded; newest first.
  std::vector<SkippedSnapshot> skipped;
};

// In each round, only rank 0 writes; any number of processes may read. A writer from an old round that
// resumes late is refused; see claim.h. `progress`, if given, is invoked during reads and writes.
//   Errors:  the messages name the file.
//   Threads: any number of callers, but only one at a time may call Write.
class SnapshotStore {
 public:
  // Keeps the newest `keep` >= 1 snapshots.
  explicit SnapshotStore(std::string directory, int keep = 3);

  // Called by the writer before the workers of its round connect. Creates the directory if it is missing,
  // verifies that it is writable, and remembers the directory's current writer.
  //   Errors: kResourceExhausted: the disk is full; the writer may continue. kPermissionDenied and other
  //           errors of the system.
  Status Prepare();

  // Called by the writer after the workers have connected. Makes this process the directory's writer, for
  // `round` of job `run_id`.
  //   REQUIRES: Prepare() was OK, or kResourceExhausted.
  //   Errors: kAborted: another writer has taken over since Prepare(); this worker should exit.
  //           kResourceExhausted: the disk is full; Write will retry.
  Status TakeOver(std::string_view run_id, Round round);

  // Writes a snapshot. Then removes snapshots of the same step that other rounds wrote. From the snapshots
  // up to this step, also removes all but the newest `keep`. Never removes the snapshot just written, so an
  // intact snapshot always exists. Never removes snapshots of a later writer, even if that writer has not
  // been detected yet.
  //   REQUIRES: TakeOver() was called with the round of `snapshot`.
  //   Errors: kResourceExhausted: the disk is full; kAborted: another writer has taken over, and this worker
  //           should exit. If the write fails, the existing snapshots remain.
  Status Write(const Snapshot& snapshot, const ByteProgress& progress = nullptr);

  // Returns the intact snapshot with the highest step. If several have the same step, returns the one with
  // the highest round.
  //   Errors: the directory cannot be listed. A missing directory counts as empty.
  [[nodiscard]] StatusOr<FoundSnapshot> FindNewest(const ByteProgress& progress = nullptr) const;

  // Reads and verifies one file.
  //   Errors: kNotFound; kDataLoss: the file is torn or damaged, or its step and round do not match its name;
  //           kUnimplemented: see ParseSnapshot.
  [[nodiscard]] StatusOr<StoredSnapshot> Load(const std::string& name,
                                              const ByteProgress& progress = nullptr) const;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Sets a function that is called after each check that the directory still belongs to this writer, before
  // the result of the check is used.
  void SetAfterCheckForTest(std::function<void()> call) { after_check_for_test_ = std::move(call); }
  // Returns, for example, "snapshot-000000000040-r7.ddp".
  static std::string NameOf(int64_t step, Round round);

 private:
  Status TakeOver();
  // Returns OK if no later writer has taken over.
  Status StillOurs() const;
  Status RemoveOld(const Snapshot& newest);

  const std::string directory_;
  const int keep_;
  DirectoryClaim claim_;
  std::string run_id_;
  std::optional<Round> round_;  // nullopt if TakeOver was not called
  bool taken_ = false;
  // Names of files that were certainly not created by a later writer: files that existed when this process
  // took over, and files that this process wrote.
  std::set<std::string> removable_;
  std::function<void()> after_check_for_test_;
};

}  // namespace ddprun
