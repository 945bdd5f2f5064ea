// Encodes the charter of a job for its register.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/charter.h"

namespace ddprun {

// Returns a JSON object. An operator may read it. Texts of equal charters may differ in the order of fields.
std::string EncodeCharter(absl::string_view run_id, const Charter& charter);

// Returns bytes that are equal if and only if the charters are, in all processes of one version.
std::string CharterBytes(const Charter& charter);

//   Errors: kInvalidArgument: not the charter of this job;
//           kFailedPrecondition: of a version of the format that this program does not know.
//           Each message says what was found and what to do.
absl::StatusOr<Charter> DecodeCharter(absl::string_view run_id, absl::string_view encoded);

}  // namespace ddprun
