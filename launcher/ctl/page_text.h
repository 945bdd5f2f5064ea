// Formats a coordinator's /status and /events pages for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct StatusView {
  std::string text;       // the table
  bool all_over = false;  // at least one job is shown, and all shown jobs are closed
};

// `json` is the body of GET /status. `job` selects a job; empty: all jobs.
//   Errors: kInternal: `json` does not have the format of this version. kNotFound: there is no job `job`; the
//           message lists the known jobs.
absl::StatusOr<StatusView> StatusTable(absl::string_view json, absl::string_view job);

struct EventLines {
  std::string text;       // one line per event: time, event, reason
  uint64_t last_seq = 0;  // sequence number of the last event; 0 if there are none
  bool over = false;      // the events include the job's end
};

// `json_lines` is the body of GET /events.
//   Errors: kInternal: `json_lines` does not have the format of this version.
absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines);

}  // namespace ddprun
