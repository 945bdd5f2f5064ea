#include "examples/train/agreement.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "worker_sdk/comm/long_work.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun::train {
namespace {

constexpr size_t kChoiceBytes = 128;  // the name of a snapshot has at most 46 bytes, its digest 64

TimePoint After(Duration limit) { return std::chrono::steady_clock::now() + limit; }

}  // namespace

absl::Status CheckAgreement(Communicator* comm, const std::map<std::string, std::string>& facts,
                            Duration stall_limit) {
  std::string mine;
  for (const auto& [name, value] : facts) {
    const Sha256::Digest digest = Sha256Of(value);
    mine.append(digest.data(), digest.size());
  }
  std::string all(mine.size() * comm->world_size(), '\0');
  RETURN_IF_ERROR(comm->AllGather(mine, absl::MakeSpan(all))->Wait(After(stall_limit)),
                  "comparing the ranks");
  const auto digest_of = [&](int rank, size_t fact) {
    return absl::string_view(all).substr(rank * mine.size() + fact * Sha256::kBytes, Sha256::kBytes);
  };
  for (int rank = 1; rank < comm->world_size(); ++rank) {
    std::vector<std::string> different;
    size_t fact = 0;
    for (const auto& [name, value] : facts) {
      if (digest_of(rank, fact) != digest_of(0, fact)) different.push_back(name);
      ++fact;
    }
    if (different.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " differs from rank 0 in ",
                                                      absl::StrJoin(different, ", "),
                                                      ": start all with the same flags and the same text"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator* comm, const SnapshotStore& store,
                                                              Duration stall_limit,
                                                              std::vector<SkippedSnapshot>* skipped) {
  const bool leads = comm->rank() == Rank(0);
  absl::StatusOr<FoundSnapshot> found = FoundSnapshot();
  const LongWork find = [&](WorkProgress& progress) {
    found = store.FindNewest([&](int64_t bytes) { progress.Advance(bytes); });
  };
  RETURN_IF_ERROR(
      FinishTogether(comm, "looking for the newest snapshot", stall_limit, leads ? find : nullptr));
  RETURN_IF_ERROR(found.status());
  *skipped = std::move(found->skipped);
  std::optional<StoredSnapshot> newest = std::move(found->newest);

  // "NAME SHA256", padded with zeros to a fixed size; all zeros: no snapshot.
  std::string choice = newest ? absl::StrCat(newest->name, " ", newest->sha256) : "";
  choice.resize(kChoiceBytes, '\0');
  RETURN_IF_ERROR(comm->Broadcast(absl::MakeSpan(choice), Rank(0))->Wait(After(stall_limit)),
                  "agreeing on a snapshot");
  const std::string text = choice.c_str();
  if (text.empty()) return std::nullopt;

  const std::pair<std::string, std::string> name_and_sha256 = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  const auto& [name, sha256] = name_and_sha256;
  absl::Status loaded;
  const LongWork load = [&, name = name](WorkProgress& progress) {
    absl::StatusOr<StoredSnapshot> snapshot =
        store.Load(name, [&](int64_t bytes) { progress.Advance(bytes); });
    if (snapshot.ok()) {
      newest = *std::move(snapshot);
    } else {
      loaded = snapshot.status();
    }
  };
  const absl::Status together =
      FinishTogether(comm, "loading the snapshot", stall_limit, leads ? nullptr : load);
  RETURN_IF_ERROR(
      loaded, "resuming from rank 0's snapshot (--snapshot-dir must be one directory that all nodes see)");
  RETURN_IF_ERROR(together);
  if (newest->sha256 != sha256) {
    return absl::FailedPreconditionError(absl::StrCat(
        store.directory(), "/", name,
        " is not rank 0's file of that name: --snapshot-dir must be one directory that all nodes see"));
  }
  return newest;
}

}  // namespace ddprun::train
