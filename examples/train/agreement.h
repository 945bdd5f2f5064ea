// What the ranks settle among themselves before the first step.
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

// Makes sure that all ranks have the same `facts` (name -> value, the same names everywhere).
//   Errors: kFailedPrecondition, on all ranks, naming a rank and the facts in which it differs from rank 0;
//   Pending::Wait's.
// `stall_limit`: how long a rank may take.
absl::Status CheckAgreement(Communicator* comm, const std::map<std::string, std::string>& facts,
                            Duration stall_limit);

// The snapshot to go on from: the newest one that rank 0 finds. Every rank loads the file that rank 0 names
// and makes sure that it is the same; none: there is none. All wait for one that reads for as long as it goes
// on.
//   skipped: on rank 0, newer ones that are not whole.
//   Errors: SnapshotStore::FindNewest's and Load's; kFailedPrecondition: this rank's file of that name is
//   another one; FinishTogether's.
absl::StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator* comm, const SnapshotStore& store,
                                                              Duration stall_limit,
                                                              std::vector<SkippedSnapshot>* skipped);

}  // namespace ddprun::train
