#include "examples/train/agreement.h"

#include <chrono>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/long_work.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun::train {
namespace {

constexpr size_t kChoiceBytes = 128;  // a snapshot's name has at most 46 bytes, and its digest has 64

TimePoint After(Duration limit) { return std::chrono::steady_clock::now() + limit; }

}  // namespace

Status CheckAgreement(Communicator comm, const std::map<std::string, std::string>& facts,
                      Duration stall_limit) {
  std::string mine;
  for (const auto& [name, value] : facts) {
    const Sha256::Digest digest = Sha256Of(value);
    mine.append(digest.data(), digest.size());
  }
  std::string all(mine.size() * comm.size(), '\0');
  DDPRUN_RETURN_IF_ERROR(comm.AllGather(View(std::as_const(mine)), View(all)).Wait(After(stall_limit)),
                         "comparing the ranks");
  const auto digest_of = [&](int rank, size_t fact) {
    return std::string_view(all).substr(rank * mine.size() + fact * Sha256::kBytes, Sha256::kBytes);
  };
  for (int rank = 1; rank < comm.size(); ++rank) {
    std::vector<std::string> different;
    size_t fact = 0;
    for (const auto& [name, value] : facts) {
      if (digest_of(rank, fact) != digest_of(0, fact)) different.push_back(name);
      ++fact;
    }
    if (different.empty()) continue;
    return FailedPreconditionError(StrCat("rank ", rank, " differs from rank 0 in ", StrJoin(different, ", "),
                                          ": start all with the same flags and the same text"));
  }
  return OkStatus();
}

StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator comm, const SnapshotStore& store,
                                                        Duration stall_limit,
                                                        std::vector<SkippedSnapshot>* skipped) {
  const bool leads = comm.rank() == 0;
  StatusOr<FoundSnapshot> found = FoundSnapshot();
  const LongWork find = [&](WorkProgress& progress) {
    found = store.FindNewest([&](int64_t bytes) { progress.Advance(bytes); });
  };
  DDPRUN_RETURN_IF_ERROR(
      FinishTogether(comm, "looking for the newest snapshot", stall_limit, leads ? find : nullptr));
  DDPRUN_RETURN_IF_ERROR(found.status());
  *skipped = std::move(found->skipped);
  std::optional<StoredSnapshot> newest = std::move(found->newest);

  // "NAME SHA256", padded with NUL bytes to a fixed size. Only NUL bytes: there is no snapshot.
  std::string choice = newest ? StrCat(newest->name, " ", newest->sha256) : "";
  choice.resize(kChoiceBytes, '\0');
  DDPRUN_RETURN_IF_ERROR(comm.Broadcast(View(choice), 0).Wait(After(stall_limit)), "agreeing on a snapshot");
  const std::string text = choice.c_str();
  if (text.empty()) return std::nullopt;

  const size_t blank = text.find(' ');
  const std::pair<std::string, std::string> name_and_sha256(
      text.substr(0, blank), blank == std::string::npos ? "" : text.substr(blank + 1));
  const auto& [name, sha256] = name_and_sha256;
  Status loaded;
  const LongWork load = [&, name = name](WorkProgress& progress) {
    StatusOr<StoredSnapshot> snapshot = store.Load(name, [&](int64_t bytes) { progress.Advance(bytes); });
    if (snapshot.ok()) {
      newest = *std::move(snapshot);
    } else {
      loaded = snapshot.status();
    }
  };
  const Status together = FinishTogether(comm, "loading the snapshot", stall_limit, leads ? nullptr : load);
  DDPRUN_RETURN_IF_ERROR(
      loaded, "resuming from rank 0's snapshot (--snapshot-dir must be one directory that all nodes see)");
  DDPRUN_RETURN_IF_ERROR(together);
  if (newest->sha256 != sha256) {
    return FailedPreconditionError(StrCat(
        store.directory(), "/", name,
        " is not rank 0's file of that name: --snapshot-dir must be one directory that all nodes see"));
  }
  return newest;
}

}  // namespace ddprun::train
