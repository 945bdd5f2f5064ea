// The /status page of a coordinator, as a table for people.
#pragma once

#include <cstdint>
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

// The /events page of a coordinator, as lines for people.

struct EventLines {
  std::string text;       // one line each: time, event, reason
  uint64_t last_seq = 0;  // 0: there were none
  bool over = false;      // the job was closed
};

// `json_lines` is the body of GET /events.
//   Errors: kInternal: it is not what a coordinator of this version answers.
absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines);

}  // namespace ddprun
