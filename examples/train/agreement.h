// Checks before the first step that all ranks agree.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/snapshot/snapshot_store.h"

namespace ddprun::train {

// Checks that all ranks have the same `facts` (name -> value). The names must be the same on all ranks.
//   stall_limit: maximum time to wait for the other ranks.
//   Errors: kFailedPrecondition, on all ranks: a rank differs from rank 0; the message names the rank and the
//           facts that differ. Also those of Work::Wait.
Status CheckAgreement(Communicator comm, const std::map<std::string, std::string>& facts,
                      Duration stall_limit);

// Returns the snapshot to resume from: the newest snapshot that rank 0 finds, or nullopt if there is none.
// Every other rank loads the file that rank 0 names, and checks that its contents equal those on rank 0. All
// ranks wait as long as each rank that reads a snapshot makes progress.
//   skipped: receives, on rank 0, newer snapshots that are incomplete.
//   Errors:  those of SnapshotStore::FindNewest and Load, and of FinishTogether; kFailedPrecondition: this
//            rank's file with that name differs from rank 0's file.
StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator comm, const SnapshotStore& store,
                                                        Duration stall_limit,
                                                        std::vector<SkippedSnapshot>* skipped);

}  // namespace ddprun::train
