// The /status page of a coordinator, as a table for people.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct StatusView {
  std::string text;       // the table
  bool all_over = false;  // there are jobs, and all of them are closed
};

// `json` is the body of GET /status; `job` the one to be shown, all if it is empty.
//   Errors: kInternal: it is not what a coordinator of this version answers;
//           kNotFound: it has no such job, with those that it has.
absl::StatusOr<StatusView> StatusTable(absl::string_view json, absl::string_view job);

}  // namespace ddprun
