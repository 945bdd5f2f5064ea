// Encodes the charter of a job for its register.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/charter.h"

namespace ddprun {

// Returns a JSON object. An operator may read it.
std::string EncodeCharter(absl::string_view run_id, const Charter& charter);

//   Errors: kInvalidArgument: not the charter of this job;
//           kFailedPrecondition: of a version of the format that this program does not know.
//           Each message says what was found and what to do.
absl::StatusOr<Charter> DecodeCharter(absl::string_view run_id, absl::string_view encoded);

}  // namespace ddprun
