// Between the messages of proto/rendezvous.proto and the RoundMachine's events and effects: the one place
// that knows both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dismissal.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/failure.h"
#include "rendezvous/core/job_report.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_policy.h"

namespace ddprun {

// Texts that come in are made valid UTF-8 and cut to their limits, whatever the sender says: they go out
// again, to all nodes. What is out of range and matters is an error; what is only for people is put into
// range.

// Errors of both: kInvalidArgument naming the field and its value.
absl::StatusOr<RoundPolicy> DecodeRules(const proto::JobRules& rules);
// `seen_addr` takes the place of an empty `join.addr`.
absl::StatusOr<NodeInfo> DecodeJoin(const proto::Join& join, absl::string_view seen_addr);
// The hosts that `join` expects; none if it names more than 1024: each node of a large job naming all would
// be the square of many.
std::vector<std::string> DecodeExpectedHosts(const proto::Join& join);
Failure DecodeFailure(const proto::Failure& failure);

// The event that `message` of `node` means.
//   Errors: kInvalidArgument: no kind (of a newer agent, or garbage), a second join, a value out of range.
absl::StatusOr<RoundEvent> DecodeEvent(const proto::AgentMessage& message, const NodeId& node);

struct Addressed {
  NodeId node;
  proto::CoordinatorMessage message;
  bool last = false;  // a Dismiss: nothing follows
};
// The message that `effect` means; none for a Note.
std::optional<Addressed> EncodeEffect(const RoundEffect& effect);
// At most 256 KiB, however many nodes and failures.
proto::JobReport EncodeReport(const JobReport& report);
proto::Dismiss EncodeDismiss(Dismissal reason, absl::string_view message);

}  // namespace ddprun
