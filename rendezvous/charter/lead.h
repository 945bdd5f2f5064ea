// The lead of a job: the part of the register's record that changes with each write.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

struct Lead {
  enum class State {
    kLeads,
    kLeft,    // the leader has handed over, or has ended without closing the job
    kClosed,  // the job is over; the charter says how. Final
  };
  int64_t epoch = 0;         // increases with each leader of the job
  std::string leader = {};   // unique to one candidate
  std::string address = {};  // HOST:PORT at which the leader serves
  State state = State::kLeads;
  Duration lease{};  // of the leader: how long candidates count at least
  int64_t swap = 0;  // number of this swap among those of the leader, from 1
  // Number of the leader's newest charter in the record; 0: it is an earlier leader's, or there is none.
  int64_t charter = 0;

  bool operator==(const Lead&) const = default;
};

std::string EncodeLead(const Lead& lead);
//   Errors: kInvalidArgument: not a lead, or that of a version of the format that this program does not know.
absl::StatusOr<Lead> DecodeLead(absl::string_view encoded);

}  // namespace ddprun
