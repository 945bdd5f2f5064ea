#include "worker_sdk/snapshot/snapshot_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

constexpr absl::string_view kPrefix = "snapshot-";
constexpr absl::string_view kSuffix = ".ddp";
constexpr absl::string_view kTemporarySuffix = ".tmp";

// The step and the round in a snapshot's name.
struct Place {
  int64_t step = 0;
  int64_t round = 0;
  auto operator<=>(const Place&) const = default;
};

std::string NameOf(const Place& place) { return SnapshotStore::NameOf(place.step, Round(place.round)); }

// Returns nullopt if `name` is not a snapshot's name.
std::optional<Place> PlaceOf(absl::string_view name) {
  absl::string_view middle = name;
  if (!absl::ConsumePrefix(&middle, kPrefix) || !absl::ConsumeSuffix(&middle, kSuffix)) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(middle, "-r");
  Place place;
  if (!absl::SimpleAtoi(parts.first, &place.step) || !absl::SimpleAtoi(parts.second, &place.round) ||
      NameOf(place) != name) {
    return std::nullopt;
  }
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

// True for temporary files, which remain when a writer is killed.
bool IsTemporary(absl::string_view name) {
  return absl::EndsWith(name, kTemporarySuffix) &&
         (absl::StartsWith(name, absl::StrCat(".", kPrefix)) ||
          absl::StartsWith(name, absl::StrCat(".", DirectoryClaim::kFile, ".")));
}

}  // namespace

SnapshotStore::SnapshotStore(std::string directory, int keep)
    : directory_(std::move(directory)), keep_(std::max(1, keep)), claim_(directory_) {}

std::string SnapshotStore::NameOf(int64_t step, Round round) {
  return absl::StrFormat("%s%012d-r%d%s", kPrefix, step, round.value(), kSuffix);
}

absl::Status SnapshotStore::Prepare() {
  const absl::Status writable = MakeWritableDirectory(directory_);
  if (!writable.ok() && !absl::IsResourceExhausted(writable)) return writable;
  RETURN_IF_ERROR(claim_.Look());
  return writable;
}

absl::Status SnapshotStore::TakeOver(absl::string_view run_id, Round round) {
  run_id_ = std::string(run_id);
  round_ = round;
  return TakeOver();
}

absl::Status SnapshotStore::TakeOver() {
  if (taken_) return claim_.Check();
  RETURN_IF_ERROR(claim_.Take(run_id_, *round_));
  taken_ = true;
  // Files that exist now were created by earlier writers. Files that appear later and are not ours are
  // created by later writers.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  removable_.insert(names.begin(), names.end());
  return absl::OkStatus();
}

absl::Status SnapshotStore::Write(const Snapshot& snapshot, const ByteProgress& progress) {
  if (round_ != snapshot.round) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write a snapshot of round ", snapshot.round.value(), " to ", directory_,
                     round_ ? absl::StrCat(": this process has taken it over for round ", round_->value())
                            : ": this process has not taken it over"));
  }
  RETURN_IF_ERROR(TakeOver());
  const std::string head = EncodeSnapshotHead(snapshot);
  std::vector<absl::string_view> parts = {head};
  for (const TensorView& tensor : snapshot.tensors) parts.push_back(tensor.bytes);
  const std::string name = NameOf(snapshot.step, snapshot.round);
  // The temporary name is unique to this writer. A PID would not be: rank 0 of an earlier round may still be
  // exiting in another container, with the same PID.
  const std::string temporary = absl::StrCat(".", name, ".", claim_.nonce(), kTemporarySuffix);
  RETURN_IF_ERROR(ReplaceFile(
      directory_, name, temporary, parts, [this] { return StillOurs(); }, progress));
  removable_.insert(name);
  return RemoveOld(snapshot);
}

absl::Status SnapshotStore::StillOurs() const {
  const absl::Status ours = claim_.Check();
  if (after_check_for_test_) after_check_for_test_();
  return ours;
}

absl::Status SnapshotStore::RemoveOld(const Snapshot& newest) {
  RETURN_IF_ERROR(StillOurs());
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::vector<std::string> obsolete;
  int kept = 1;
  for (const Place& place : PlacesOf(names)) {
    const bool itself = place == Place{newest.step, newest.round.value()};
    if (itself || place.step > newest.step) continue;
    if (place.step == newest.step || ++kept > keep_) obsolete.push_back(ddprun::NameOf(place));
  }
  std::copy_if(names.begin(), names.end(), std::back_inserter(obsolete), IsTemporary);
  for (const std::string& name : obsolete) {
    if (removable_.erase(name) == 0) continue;
    const std::string path = absl::StrCat(directory_, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("cannot remove", path, errno);
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundSnapshot> SnapshotStore::FindNewest(const ByteProgress& progress) const {
  FoundSnapshot found;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory_);
  if (absl::IsNotFound(names.status())) return found;
  RETURN_IF_ERROR(names.status());
  for (const Place& place : PlacesOf(*names)) {
    const std::string name = ddprun::NameOf(place);
    absl::StatusOr<StoredSnapshot> snapshot = Load(name, progress);
    if (snapshot.ok()) {
      found.newest = *std::move(snapshot);
      break;
    }
    found.skipped.push_back({absl::StrCat(directory_, "/", name), snapshot.status()});
  }
  return found;
}

absl::StatusOr<StoredSnapshot> SnapshotStore::Load(const std::string& name,
                                                   const ByteProgress& progress) const {
  const std::string path = absl::StrCat(directory_, "/", name);
  StoredSnapshot stored;
  stored.name = name;
  ASSIGN_OR_RETURN(stored.bytes, ReadFile(path, progress));
  ASSIGN_OR_RETURN(ParsedSnapshot parsed, ParseSnapshot(stored.bytes), path);
  if (name != NameOf(parsed.snapshot.step, parsed.snapshot.round)) {
    return absl::DataLossError(absl::StrCat(path, ": holds step ", parsed.snapshot.step, " of round ",
                                            parsed.snapshot.round.value()));
  }
  stored.sha256 = std::move(parsed.sha256);
  stored.snapshot = std::move(parsed.snapshot);
  return stored;
}

}  // namespace ddprun
