// Between the messages of proto/rendezvous.proto and the RoundMachine's events and effects: the one place
// that knows both.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun {

// Errors of both: kInvalidArgument naming the field and its value.
absl::StatusOr<RoundPolicy> DecodeRules(const proto::JobRules& rules);
// `seen_addr` takes the place of an empty `join.addr`.
absl::StatusOr<NodeInfo> DecodeJoin(const proto::Join& join, absl::string_view seen_addr);

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

}  // namespace ddprun
