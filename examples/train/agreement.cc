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
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun::train {
namespace {

// Ranks may have very different work before they meet: rank 0 looks through the snapshots.
constexpr Duration kTimeout = seconds(300);

constexpr size_t kChoiceBytes = 128;  // a snapshot's name has 46 bytes at most, its digest 64

TimePoint Deadline() { return std::chrono::steady_clock::now() + kTimeout; }

}  // namespace

absl::Status CheckAgreement(Communicator* comm, const std::map<std::string, std::string>& facts) {
  std::string mine;
  for (const auto& [name, value] : facts) {
    const Sha256::Digest digest = Sha256Of(value);
    mine.append(digest.data(), digest.size());
  }
  std::string all(mine.size() * comm->world_size(), '\0');
  RETURN_IF_ERROR(comm->AllGather(mine, absl::MakeSpan(all))->Wait(Deadline()), "comparing the ranks");
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
                                                              std::optional<StoredSnapshot> newest) {
  // "NAME SHA256" of fixed size, filled up with zeros; nothing but zeros when there is none.
  std::string choice = newest ? absl::StrCat(newest->name, " ", newest->sha256) : "";
  choice.resize(kChoiceBytes, '\0');
  RETURN_IF_ERROR(comm->Broadcast(absl::MakeSpan(choice), Rank(0))->Wait(Deadline()),
                  "agreeing on a snapshot");
  const std::string text = choice.c_str();
  if (text.empty() || newest) return newest;

  const std::pair<std::string, std::string> name_and_sha256 = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  const auto& [name, sha256] = name_and_sha256;
  ASSIGN_OR_RETURN(
      StoredSnapshot snapshot, store.Load(name),
      "going on from rank 0's snapshot (--snapshot-dir must be one directory that all nodes see)");
  if (snapshot.sha256 != sha256) {
    return absl::FailedPreconditionError(absl::StrCat(
        store.directory(), "/", name,
        " is not rank 0's file of that name: --snapshot-dir must be one directory that all nodes see"));
  }
  return snapshot;
}

}  // namespace ddprun::train
