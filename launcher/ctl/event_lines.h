// The /events page of a coordinator, as lines for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct EventLines {
  std::string text;       // one line each: time, event, reason
  uint64_t last_seq = 0;  // 0: there were none
  bool over = false;      // the job was closed
};

// `json_lines` is the body of GET /events.
//   Errors: kInternal: it is not what a coordinator of this version answers.
absl::StatusOr<EventLines> ParseEvents(absl::string_view json_lines);

}  // namespace ddprun
