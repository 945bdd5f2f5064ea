// Votes as messages of proto/voters.proto.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/voters.pb.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

proto::VoteRequest EncodeVoteRequest(const std::string& run_id, const VoteRequest& request);
proto::VoteReply EncodeVoteReply(const VoteReply& reply);
proto::VoterSet EncodeVoters(const VoterSet& voters);

//   Errors: kInvalidArgument: names the field.
absl::StatusOr<VoteRequest> DecodeVoteRequest(const proto::VoteRequest& message);
absl::StatusOr<VoteReply> DecodeVoteReply(const proto::VoteReply& message);
absl::StatusOr<VoterSet> DecodeVoters(const proto::VoterSet& message);

}  // namespace ddprun
