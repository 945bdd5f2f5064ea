// Between base/failure.h and base/job_report.h, and their messages in proto/rendezvous.proto: the one place
// that knows both.
#pragma once

#include <vector>

#include "base/failure.h"
#include "base/time.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Times travel as ages. `now`: of the clock that failed_at is of.
//   Errors: none. A malformed failure or report is no reason to evict its node: texts become valid UTF-8 and
//           are cut to their limits, both ways; numbers are put into range, lists are cut.

proto::Failure EncodeFailure(const Failure& failure, TimePoint now);
Failure DecodeFailure(const proto::Failure& failure, TimePoint now);

// The first 64: one node's of one round.
std::vector<Failure> DecodeFailures(const google::protobuf::RepeatedPtrField<proto::Failure>& failures,
                                    TimePoint now);

// At most 256 KiB, however many nodes and failures.
proto::JobReport EncodeReport(const JobReport& report, TimePoint now);
JobReport DecodeReport(const proto::JobReport& report, TimePoint now);

}  // namespace ddprun
