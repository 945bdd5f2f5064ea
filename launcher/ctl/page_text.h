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
//   Errors: kInternal: not a page of this version; kNotFound: no such job, with the names of the known ones.
absl::StatusOr<StatusView> StatusTable(absl::string_view json, absl::string_view job);

struct EventLines {
  std::string text;       // a line per event: time, event, reason
  uint64_t last_seq = 0;  // of the last event; 0: no events
  bool over = false;      // the events include the job's end
};

// `json_lines` is the body of GET /events.
//   Errors: kInternal: not a page of this version.
absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines);

}  // namespace ddprun
