// Agreement between the ranks before the first step.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/snapshot/snapshot_store.h"

namespace ddprun::train {

// Checks that all ranks have the same `facts` (name -> value; the names are the same on all ranks).
//   stall_limit: how long a rank may take.
//   Errors: kFailedPrecondition, on all ranks, naming a rank and the facts in which it differs from rank 0;
//           also those of Pending::Wait.
absl::Status CheckAgreement(Communicator* comm, const std::map<std::string, std::string>& facts,
                            Duration stall_limit);

// Returns the snapshot to resume from: the newest one that rank 0 finds, or nullopt. Every other rank loads
// the file that rank 0 names and checks that its contents equal rank 0's. All ranks wait as long as a rank
// that is reading makes progress.
//   skipped: receives, on rank 0, newer snapshots that are incomplete.
//   Errors:  those of SnapshotStore::FindNewest and Load, and of FinishTogether; kFailedPrecondition: this
//            rank's file of that name differs.
absl::StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator* comm, const SnapshotStore& store,
                                                              Duration stall_limit,
                                                              std::vector<SkippedSnapshot>* skipped);

}  // namespace ddprun::train
