// Finds the coordinator of a job with a register, for ddpctl.
#pragma once

#include "absl/status/statusor.h"
#include "launcher/ctl/ctl.h"
#include "net/endpoint.h"

namespace ddprun {

// See FindLeader. Blocks for up to 10 s.
absl::StatusOr<Endpoint> FindLeaderOnEtcd(const RegisterQuery& query);

}  // namespace ddprun
