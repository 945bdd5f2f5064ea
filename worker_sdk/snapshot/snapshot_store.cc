#include "worker_sdk/snapshot/snapshot_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <iterator>
#include <string_view>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

constexpr std::string_view kPrefix = "snapshot-";
constexpr std::string_view kSuffix = ".ddp";
constexpr std::string_view kTemporarySuffix = ".tmp";

// The step and the round in a snapshot's name.
struct Place {
  int64_t step = 0;
  int64_t round = 0;
  auto operator<=>(const Place&) const = default;
};

std::string FileNameOf(const Place& place) { return SnapshotStore::NameOf(place.step, Round(place.round)); }

// Returns nullopt if `name` is not a snapshot's name.
std::optional<Place> PlaceOf(std::string_view name) {
  std::string_view middle = name;
  if (!ConsumePrefix(&middle, kPrefix) || !ConsumeSuffix(&middle, kSuffix)) return std::nullopt;
  const size_t separator = middle.find("-r");
  if (separator == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> step = ParseNumber<int64_t>(middle.substr(0, separator));
  const std::optional<int64_t> round = ParseNumber<int64_t>(middle.substr(separator + 2));
  if (!step || !round) return std::nullopt;
  const Place place{.step = *step, .round = *round};
  if (FileNameOf(place) != name) return std::nullopt;
  return place;
}

// Returns the snapshots among `names`, newest first.
std::vector<Place> PlacesOf(const std::vector<std::string>& names) {
  std::vector<Place> places;
  for (const std::string& name : names) {
    if (const std::optional<Place> place = PlaceOf(name)) places.push_back(*place);
  }
  std::sort(places.rbegin(), places.rend());
  return places;
}

// Returns true for temporary files, which are left behind when a writer is killed.
bool IsTemporary(std::string_view name) {
  return name.ends_with(kTemporarySuffix) && (name.starts_with(StrCat(".", kPrefix)) ||
                                              name.starts_with(StrCat(".", DirectoryClaim::kFile, ".")));
}

}  // namespace

SnapshotStore::SnapshotStore(std::string directory, int keep)
    : directory_(std::move(directory)), keep_(std::max(1, keep)), claim_(directory_) {}

std::string SnapshotStore::NameOf(int64_t step, Round round) {
  std::string digits = StrCat(step);
  if (digits.size() < 12) digits.insert(0, 12 - digits.size(), '0');
  return StrCat(kPrefix, digits, "-r", round.value(), kSuffix);
}

Status SnapshotStore::Prepare() {
  const Status writable = MakeWritableDirectory(directory_);
  if (!writable.ok() && !IsResourceExhausted(writable)) return writable;
  DDPRUN_RETURN_IF_ERROR(claim_.Look());
  return writable;
}

Status SnapshotStore::TakeOver(std::string_view run_id, Round round) {
  run_id_ = std::string(run_id);
  round_ = round;
  return TakeOver();
}

Status SnapshotStore::TakeOver() {
  if (taken_) return claim_.Check();
  DDPRUN_RETURN_IF_ERROR(claim_.Take(run_id_, *round_));
  // Files that exist now were created by earlier writers. Files that appear later and are not ours are
  // created by later writers.
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  removable_.insert(names.begin(), names.end());
  taken_ = true;
  return OkStatus();
}

Status SnapshotStore::Write(const Snapshot& snapshot, const ByteProgress& progress) {
  if (round_ != snapshot.round) {
    return FailedPreconditionError(
        StrCat("cannot write a snapshot of round ", snapshot.round.value(), " to ", directory_,
               round_ ? StrCat(": this process has taken it over for round ", round_->value())
                      : ": this process has not taken it over"));
  }
  DDPRUN_RETURN_IF_ERROR(TakeOver());
  const std::string head = EncodeSnapshotHead(snapshot);
  std::vector<std::string_view> parts = {head};
  for (const TensorView& tensor : snapshot.tensors) parts.push_back(tensor.bytes);
  const std::string name = NameOf(snapshot.step, snapshot.round);
  // The temporary name is unique to this writer. A PID would not be unique: rank 0 of an earlier round may
  // still be exiting in another container with the same PID.
  const std::string temporary = StrCat(".", name, ".", claim_.nonce(), kTemporarySuffix);
  removable_.insert(name);  // before the file exists: ReplaceFile may create the file and then fail
  DDPRUN_RETURN_IF_ERROR(ReplaceFile(
      directory_, name, temporary, parts, [this] { return StillOurs(); }, progress));
  return RemoveOld(snapshot);
}

Status SnapshotStore::StillOurs() const {
  const Status ours = claim_.Check();
  if (after_check_for_test_) after_check_for_test_();
  return ours;
}

Status SnapshotStore::RemoveOld(const Snapshot& newest) {
  DDPRUN_RETURN_IF_ERROR(StillOurs());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::vector<std::string> obsolete;
  int kept = 1;
  for (const Place& place : PlacesOf(names)) {
    const bool itself = place == Place{newest.step, newest.round.value()};
    if (itself || place.step > newest.step) continue;
    if (place.step == newest.step || ++kept > keep_) obsolete.push_back(FileNameOf(place));
  }
  std::copy_if(names.begin(), names.end(), std::back_inserter(obsolete), IsTemporary);
  for (const std::string& name : obsolete) {
    if (removable_.erase(name) == 0) continue;
    const std::string path = StrCat(directory_, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("cannot remove", path, errno);
  }
  return OkStatus();
}

StatusOr<FoundSnapshot> SnapshotStore::FindNewest(const ByteProgress& progress) const {
  FoundSnapshot found;
  const StatusOr<std::vector<std::string>> names = ListDirectory(directory_);
  if (IsNotFound(names.status())) return found;
  DDPRUN_RETURN_IF_ERROR(names.status());
  for (const Place& place : PlacesOf(*names)) {
    const std::string name = FileNameOf(place);
    StatusOr<StoredSnapshot> snapshot = Load(name, progress);
    if (snapshot.ok()) {
      found.newest = *std::move(snapshot);
      break;
    }
    found.skipped.push_back({StrCat(directory_, "/", name), snapshot.status()});
  }
  return found;
}

StatusOr<StoredSnapshot> SnapshotStore::Load(const std::string& name, const ByteProgress& progress) const {
  const std::string path = StrCat(directory_, "/", name);
  StoredSnapshot stored;
  stored.name = name;
  DDPRUN_ASSIGN_OR_RETURN(stored.bytes, ReadFile(path, progress));
  DDPRUN_ASSIGN_OR_RETURN(ParsedSnapshot parsed, ParseSnapshot(stored.bytes), path);
  if (name != NameOf(parsed.snapshot.step, parsed.snapshot.round)) {
    return DataLossError(
        StrCat(path, ": holds step ", parsed.snapshot.step, " of round ", parsed.snapshot.round.value()));
  }
  stored.sha256 = std::move(parsed.sha256);
  stored.snapshot = std::move(parsed.snapshot);
  return stored;
}

}  // namespace ddprun
