// The snapshots of a job in one directory, each a file that is there as a whole or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// One process of the job, rank 0, writes; any number read.
//   Errors: name the file.
//   Threads: any number of callers, Write excepted: one at a time.
class SnapshotStore {
 public:
  // Keeps the newest `keep` >= 1 snapshots.
  explicit SnapshotStore(std::string directory, int keep = 3);

  // Makes the directory where it is missing and proves that it can be written to.
  //   Errors: kPermissionDenied, kResourceExhausted and others: as the system says.
  absl::Status Prepare();

  // Writes a snapshot under its step's name, over an older one of that step, and then removes all but the
  // newest `keep` of those up to this step: never this one, so that there always is a whole one.
  //   Errors: kResourceExhausted: the disk is full. After any error the snapshots that were there still are.
  absl::Status Write(const Snapshot& snapshot);

  // The snapshot of the highest step that is whole.
  //   Errors: the directory cannot be listed. A directory that is missing is an empty one.
  [[nodiscard]] absl::StatusOr<FoundSnapshot> FindNewest() const;

  // Reads and checks one file.
  //   Errors: kNotFound; kDataLoss: torn, damaged, or of another step than its name says.
  [[nodiscard]] absl::StatusOr<StoredSnapshot> Load(const std::string& name) const;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  // "snapshot-000000000040.ddp"
  static std::string NameOf(int64_t step);

 private:
  absl::Status RemoveOld(int64_t newest_step) const;

  const std::string directory_;
  const int keep_;
};

}  // namespace ddprun
