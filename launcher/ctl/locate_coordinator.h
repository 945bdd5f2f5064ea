// Finds the coordinator among the agents of a job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "net/endpoint.h"

namespace ddprun {

// Returns the endpoint of the coordinator: the first of `endpoints` at which one answers, or the endpoint that an agent or a witness
// there names because another process coordinates the job (--quorum=voters). Blocks for up to `timeout` for each of them.
//   job:    empty: any.
//   Errors: as those of GetCoordinatorPage, for the first endpoint.
absl::StatusOr<Endpoint> LocateCoordinator(const std::vector<Endpoint>& endpoints, const std::string& job,
                                           Duration timeout);

}  // namespace ddprun
