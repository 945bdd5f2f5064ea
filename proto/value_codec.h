// Conversion between types of package base (failures, reports, dismissals, rules) and their messages in
// proto/rendezvous.proto.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dismissal.h"
#include "base/failure.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "google/protobuf/map.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Failures and reports. Times are sent as ages. `now` is the current time on the clock that measures
// failed_at.
//   Errors: none, because a malformed failure or report must not cause an eviction. Encoding and decoding
//           convert text to valid UTF-8 and truncate it. Decoding also clamps numbers and truncates lists.

proto::Failure EncodeFailure(const Failure& failure, TimePoint now);
Failure DecodeFailure(const proto::Failure& failure, TimePoint now);

// Decodes the failures of one node in one round, at most the first 64.
std::vector<Failure> DecodeFailures(const google::protobuf::RepeatedPtrField<proto::Failure>& failures,
                                    TimePoint now);

// The encoded message has at most 256 KiB if `report` stays within the limits of JobReport.
proto::JobReport EncodeReport(const JobReport& report, TimePoint now);
JobReport DecodeReport(const proto::JobReport& report, TimePoint now);

// Dismissals. A value on the wire is the value of the Dismissal plus one, because 0 means UNSPECIFIED.

inline proto::DismissReason EncodeDismissal(Dismissal reason) {
  return static_cast<proto::DismissReason>(static_cast<int>(reason) + 1);
}

// Unknown reasons map to kFailed.
inline Dismissal DecodeDismissal(proto::DismissReason reason) {
  if (reason == proto::DISMISS_REASON_UNSPECIFIED || !proto::DismissReason_IsValid(reason)) {
    return Dismissal::kFailed;
  }
  return static_cast<Dismissal>(static_cast<int>(reason) - 1);
}

static_assert(static_cast<int>(Dismissal::kSucceeded) + 1 == proto::DISMISS_REASON_SUCCEEDED);
static_assert(static_cast<int>(Dismissal::kFailed) + 1 == proto::DISMISS_REASON_FAILED);
static_assert(static_cast<int>(Dismissal::kJoinTimeout) + 1 == proto::DISMISS_REASON_JOIN_TIMEOUT);
static_assert(static_cast<int>(Dismissal::kEvicted) + 1 == proto::DISMISS_REASON_EVICTED);
static_assert(static_cast<int>(Dismissal::kRejected) + 1 == proto::DISMISS_REASON_REJECTED);
static_assert(static_cast<int>(Dismissal::kStopped) + 1 == proto::DISMISS_REASON_STOPPED);
static_assert(static_cast<int>(Dismissal::kDrained) + 1 == proto::DISMISS_REASON_DRAINED);
static_assert(static_cast<int>(Dismissal::kCoordinatorEnded) + 1 == proto::DISMISS_REASON_COORDINATOR_ENDED);
static_assert(static_cast<int>(Dismissal::kPreempted) + 1 == proto::DISMISS_REASON_PREEMPTED);
static_assert(static_cast<int>(Dismissal::kMoved) + 1 == proto::DISMISS_REASON_MOVED);

// Job rules in Join messages.

using RulesMap = google::protobuf::Map<std::string, int64_t>;

inline void EncodeRules(const JobRules& rules, RulesMap& out) {
  for (const JobRuleField& field : JobRuleFields()) out[std::string(field.name)] = field.get(rules);
}

// Rules that `map` does not contain have their defaults.
//   Errors: those of SetRule and CheckRules.
inline absl::StatusOr<JobRules> DecodeRules(const RulesMap& map) {
  JobRules rules;
  for (const auto& [name, value] : map) {
    if (absl::Status status = SetRule(name, value, rules); !status.ok()) return status;
  }
  if (absl::Status status = CheckRules(rules); !status.ok()) return status;
  return rules;
}

}  // namespace ddprun
