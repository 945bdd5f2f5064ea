// Converts between the messages of proto/rendezvous.proto and the events and effects of CoordinatorMachine.
// proto/value_codec.h converts the failures, reports and rules in the messages.
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

// Received text is limited in size, because the text is forwarded to all nodes. A value that affects the job
// is rejected if it is invalid, for example too long or out of range. Text that is only displayed is
// truncated and converted to valid UTF-8 instead.

// Returns the description of the node in `join`.
//   Errors: kInvalidArgument; the message names the field and its value.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const proto::Join& join);
// Returns the hosts that `join` expects, or an empty list if `join` names more than 1024 hosts. The limit is
// necessary because the total size is O(n^2) if every node of a large job names all other nodes.
std::vector<std::string> DecodeExpectedHosts(const proto::Join& join);

// Returns PeerJoined for a valid join, and PeerSaid for any other valid message. Returns PeerMisspoke if the
// kind of the message is unknown, for example because the agent is newer, or if a value is invalid. `now` is
// the time at which the message arrived.
CoordinatorEvent DecodeAgentMessage(PeerId peer, const proto::AgentMessage& message, TimePoint now);
// Returns the message that carries `order`. `now` is the time at which the message is sent.
//   REQUIRES: `order` is not a Note.
proto::CoordinatorMessage EncodeOrder(const RoundEffect& order, TimePoint now);
proto::Dismiss EncodeDismiss(Dismissal reason, absl::string_view message);

}  // namespace ddprun
