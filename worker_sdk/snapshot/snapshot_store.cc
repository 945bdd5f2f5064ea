#include "worker_sdk/snapshot/snapshot_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

constexpr absl::string_view kPrefix = "snapshot-";
constexpr absl::string_view kSuffix = ".ddp";
constexpr absl::string_view kTemporarySuffix = ".tmp";

// The step that a file's name says; none: not the name of a snapshot.
std::optional<int64_t> StepOf(absl::string_view name) {
  int64_t step;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, kPrefix) || !absl::ConsumeSuffix(&digits, kSuffix)) return std::nullopt;
  if (!absl::SimpleAtoi(digits, &step) || step < 0 || SnapshotStore::NameOf(step) != name)
    return std::nullopt;
  return step;
}

// Steps of the snapshots among `names`, the highest first.
std::vector<int64_t> StepsOf(const std::vector<std::string>& names) {
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

}  // namespace

SnapshotStore::SnapshotStore(std::string directory, int keep)
    : directory_(std::move(directory)), keep_(std::max(1, keep)) {}

std::string SnapshotStore::NameOf(int64_t step) {
  return absl::StrFormat("%s%012d%s", kPrefix, step, kSuffix);
}

absl::Status SnapshotStore::Prepare() { return MakeWritableDirectory(directory_); }

absl::Status SnapshotStore::Write(const Snapshot& snapshot) {
  const std::string head = EncodeSnapshotHead(snapshot);
  std::vector<absl::string_view> parts = {head};
  for (const TensorView& tensor : snapshot.tensors) parts.push_back(tensor.bytes);
  const std::string name = NameOf(snapshot.step);
  // The temporary file is of this writer alone: rank 0 of an earlier round may be on its way out still.
  const std::string temporary =
      absl::StrCat(".", name, ".", snapshot.round.value(), "-", getpid(), kTemporarySuffix);
  RETURN_IF_ERROR(ReplaceFile(directory_, name, temporary, parts));
  return RemoveOld(snapshot.step);
}

absl::Status SnapshotStore::RemoveOld(int64_t newest_step) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::vector<std::string> doomed;
  int kept = 0;
  for (const int64_t step : StepsOf(names)) {
    if (step <= newest_step && ++kept > keep_) doomed.push_back(NameOf(step));
  }
  for (const std::string& name : names) {  // what a writer left that was killed
    if (absl::StartsWith(name, absl::StrCat(".", kPrefix)) && absl::EndsWith(name, kTemporarySuffix)) {
      doomed.push_back(name);
    }
  }
  for (const std::string& name : doomed) {
    const std::string path = absl::StrCat(directory_, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("cannot remove the old", path, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundSnapshot> SnapshotStore::FindNewest() const {
  FoundSnapshot found;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory_);
  if (absl::IsNotFound(names.status())) return found;
  RETURN_IF_ERROR(names.status());
  for (const int64_t step : StepsOf(*names)) {
    absl::StatusOr<StoredSnapshot> snapshot = Load(NameOf(step));
    if (snapshot.ok()) {
      found.newest = *std::move(snapshot);
      break;
    }
    found.skipped.push_back({absl::StrCat(directory_, "/", NameOf(step)), snapshot.status()});
  }
  return found;
}

absl::StatusOr<StoredSnapshot> SnapshotStore::Load(const std::string& name) const {
  const std::string path = absl::StrCat(directory_, "/", name);
  StoredSnapshot stored;
  stored.name = name;
  ASSIGN_OR_RETURN(stored.bytes, ReadFile(path));
  ASSIGN_OR_RETURN(ParsedSnapshot parsed, ParseSnapshot(stored.bytes), path);
  if (StepOf(name) != parsed.snapshot.step) {
    return absl::DataLossError(absl::StrCat(path, ": holds step ", parsed.snapshot.step));
  }
  stored.sha256 = std::move(parsed.sha256);
  stored.snapshot = std::move(parsed.snapshot);
  return stored;
}

}  // namespace ddprun
