// What the ranks settle among themselves before the first step.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_sdk/comm/communicator.h"
#include "worker_sdk/snapshot/snapshot_store.h"

namespace ddprun::train {

// Makes sure that all ranks have the same `facts` (name -> value, the same names everywhere).
//   Errors: kFailedPrecondition, on all ranks, naming a rank and the facts in which it differs from rank 0;
//   Pending::Wait's.
absl::Status CheckAgreement(Communicator* comm, const std::map<std::string, std::string>& facts);

// The snapshot to go on from: `newest`, which rank 0 has found and the others leave empty. Every rank loads
// the file that rank 0 names and makes sure that it is the same; none: there is none.
//   Errors: SnapshotStore::Load's; kFailedPrecondition: this rank's file of that name is another one;
//   Pending::Wait's.
absl::StatusOr<std::optional<StoredSnapshot>> AgreeOnSnapshot(Communicator* comm, const SnapshotStore& store,
                                                              std::optional<StoredSnapshot> newest);

}  // namespace ddprun::train
