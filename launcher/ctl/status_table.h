// The /status page of a coordinator, as a table for people.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// `json` is the body of GET /status.
//   Errors: kInvalidArgument: it is not what a coordinator of this version answers.
absl::StatusOr<std::string> StatusTable(absl::string_view json);

}  // namespace ddprun
