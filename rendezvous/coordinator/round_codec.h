// Converts between the messages of proto/rendezvous.proto and the events and effects of CoordinatorMachine.
// proto/failure_codec.h converts the failures and reports in them.
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

// Received texts are converted to valid UTF-8 and truncated to their limits, since they are sent on to all
// nodes. A value out of range is an error if it affects the job; a text for people is corrected instead.

// Errors: kInvalidArgument naming the field and its value.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const proto::Join& join);
// Returns the hosts that `join` expects, or an empty list if it names more than 1024: the total size would be
// O(n^2) if every node of a large job named all others.
std::vector<std::string> DecodeExpectedHosts(const proto::Join& join);

// Returns PeerJoined, PeerSaid, or PeerMisspoke if the kind of message is unknown (a newer agent, or
// garbage) or a value is out of range. `now` is the time of arrival.
CoordinatorEvent DecodeAgentMessage(PeerId peer, const proto::AgentMessage& message, TimePoint now);
// `now` is the time of sending. REQUIRES: `order` is not a Note.
proto::CoordinatorMessage EncodeOrder(const RoundEffect& order, TimePoint now);
proto::Dismiss EncodeDismiss(Dismissal reason, absl::string_view message);

}  // namespace ddprun
