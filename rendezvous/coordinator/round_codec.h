// Between the messages of proto/rendezvous.proto and the events and effects of CoordinatorMachine: the one
// place that knows both. proto/failure_codec.h has the failures and reports in them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dismissal.h"
#include "base/time.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/coordinator_events.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// Texts that come in are made valid UTF-8 and cut to their limits, whatever the sender says: they go out
// again, to all nodes. What is out of range and matters is an error; what is only for people is put into
// range.

// Errors: kInvalidArgument naming the field and its value.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const proto::Join& join);
// The hosts that `join` expects; none if it names more than 1024: each node of a large job naming all would
// be the square of many.
std::vector<std::string> DecodeExpectedHosts(const proto::Join& join);

// PeerJoined, PeerSaid, or PeerMisspoke: no kind (of a newer agent, or garbage), or a value out of range.
// `now`: when it arrived.
CoordinatorEvent DecodeAgentMessage(PeerId peer, const proto::AgentMessage& message, TimePoint now);
// `now`: when it is sent. REQUIRES: `order` is no Note.
proto::CoordinatorMessage EncodeOrder(const RoundEffect& order, TimePoint now);
proto::Dismiss EncodeDismiss(Dismissal reason, absl::string_view message);

}  // namespace ddprun
