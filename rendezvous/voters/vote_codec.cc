#include "rendezvous/voters/vote_codec.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr int kMaxVoters = 16;
// So that no sum overflows.
constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max() / 2;

absl::Status CheckNumber(const char* field, int64_t number) {
  if (number >= 0 && number <= kMaxNumber) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a vote with ", field, " ", number));
}

void Encode(const Ballot& ballot, proto::Ballot* message) {
  message->set_counter(ballot.counter);
  message->set_proposer(ballot.proposer);
}
absl::StatusOr<Ballot> Decode(const proto::Ballot& message) {
  RETURN_IF_ERROR(CheckNumber("ballot", message.counter()));
  return Ballot{message.counter(), message.proposer()};
}

void Encode(const VoterGroup& group, proto::VoterGroup* message) {
  for (const Voter& voter : group.voters) {
    proto::Voter& added = *message->add_voter();
    added.set_id(voter.id);
    added.set_address(voter.address);
    added.set_witness(voter.witness);
  }
  message->set_tie_breaker(group.tie_breaker);
}
absl::StatusOr<VoterGroup> Decode(const proto::VoterGroup& message) {
  if (message.voter_size() == 0 || message.voter_size() > kMaxVoters) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group of ", message.voter_size(), " voters, expected 1 to ", kMaxVoters));
  }
  VoterGroup group{.tie_breaker = message.tie_breaker()};
  for (const proto::Voter& voter : message.voter()) {
    if (voter.id().empty() || voter.address().empty())
      return absl::InvalidArgumentError("a voter without an id or an address");
    group.voters.push_back({voter.id(), voter.address(), voter.witness()});
  }
  return group;
}

void Encode(const VotedRecord& record, proto::VotedRecord* message) {
  message->set_version(record.record.version);
  message->set_lead(record.record.lead);
  message->set_charter(record.record.charter);
  Encode(record.written, message->mutable_written());
  Encode(record.charter_written, message->mutable_charter_written());
  *message->mutable_voters() = EncodeVoters(record.voters);
}
absl::StatusOr<VotedRecord> Decode(const proto::VotedRecord& message) {
  RETURN_IF_ERROR(CheckNumber("version", message.version()));
  VotedRecord record;
  record.record = {
      .version = message.version(), .exists = true, .lead = message.lead(), .charter = message.charter()};
  ASSIGN_OR_RETURN(record.written, Decode(message.written()));
  ASSIGN_OR_RETURN(record.charter_written, Decode(message.charter_written()));
  ASSIGN_OR_RETURN(record.voters, DecodeVoters(message.voters()));
  return record;
}

}  // namespace

proto::VoterSet EncodeVoters(const VoterSet& voters) {
  proto::VoterSet message;
  message.set_number(voters.number);
  Encode(voters.now, message.mutable_now());
  if (voters.before) Encode(*voters.before, message.mutable_before());
  return message;
}

absl::StatusOr<VoterSet> DecodeVoters(const proto::VoterSet& message) {
  RETURN_IF_ERROR(CheckNumber("number of voters", message.number()));
  VoterSet voters{.number = message.number()};
  ASSIGN_OR_RETURN(voters.now, Decode(message.now()));
  if (message.has_before()) {
    ASSIGN_OR_RETURN(voters.before, Decode(message.before()));
  }
  return voters;
}

proto::VoteRequest EncodeVoteRequest(const std::string& run_id, const VoteRequest& request) {
  proto::VoteRequest message;
  message.set_run_id(run_id);
  switch (request.kind) {
    case VoteRequest::Kind::kAsk:
      message.set_kind(proto::VoteRequest::ASK);
      break;
    case VoteRequest::Kind::kPrepare:
      message.set_kind(proto::VoteRequest::PREPARE);
      break;
    case VoteRequest::Kind::kAccept:
      message.set_kind(proto::VoteRequest::ACCEPT);
      break;
  }
  message.set_voter(request.voter);
  Encode(request.ballot, message.mutable_ballot());
  Encode(request.next, message.mutable_next());
  if (request.record) Encode(*request.record, message.mutable_record());
  message.set_charter_omitted(request.charter_omitted);
  Encode(request.has_charter, message.mutable_has_charter());
  if (request.voters) *message.mutable_voters() = EncodeVoters(*request.voters);
  message.set_wants_voters(request.wants_voters);
  return message;
}

absl::StatusOr<VoteRequest> DecodeVoteRequest(const proto::VoteRequest& message) {
  VoteRequest request{.voter = message.voter(), .charter_omitted = message.charter_omitted()};
  ASSIGN_OR_RETURN(request.ballot, Decode(message.ballot()));
  ASSIGN_OR_RETURN(request.next, Decode(message.next()));
  ASSIGN_OR_RETURN(request.has_charter, Decode(message.has_charter()));
  request.wants_voters = message.wants_voters();
  if (message.has_voters()) {
    ASSIGN_OR_RETURN(request.voters, DecodeVoters(message.voters()));
  }
  if (message.kind() == proto::VoteRequest::ASK) return request;
  if (message.kind() == proto::VoteRequest::PREPARE) {
    request.kind = VoteRequest::Kind::kPrepare;
  } else if (message.kind() == proto::VoteRequest::ACCEPT) {
    request.kind = VoteRequest::Kind::kAccept;
    ASSIGN_OR_RETURN(request.record, Decode(message.record()));
    if (request.next <= request.ballot)
      return absl::InvalidArgumentError("a vote whose next ballot is not greater");
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("a vote of the unknown kind ", static_cast<int>(message.kind())));
  }
  if (request.ballot.counter == 0) return absl::InvalidArgumentError("a vote without a ballot");
  return request;
}

proto::VoteReply EncodeVoteReply(const VoteReply& reply) {
  proto::VoteReply message;
  message.set_voter(reply.voter);
  message.set_granted(reply.granted);
  message.set_needs_charter(reply.needs_charter);
  Encode(reply.promised, message.mutable_promised());
  Encode(reply.accepted, message.mutable_accepted());
  if (reply.record) Encode(*reply.record, message.mutable_record());
  message.set_charter_omitted(reply.charter_omitted);
  if (reply.voters) *message.mutable_voters() = EncodeVoters(*reply.voters);
  message.set_witness(reply.witness);
  return message;
}

absl::StatusOr<VoteReply> DecodeVoteReply(const proto::VoteReply& message) {
  if (message.voter().empty()) return absl::InvalidArgumentError("the reply of a voter without an id");
  VoteReply reply{.voter = message.voter(),
                  .witness = message.witness(),
                  .granted = message.granted(),
                  .needs_charter = message.needs_charter(),
                  .charter_omitted = message.charter_omitted()};
  ASSIGN_OR_RETURN(reply.promised, Decode(message.promised()));
  ASSIGN_OR_RETURN(reply.accepted, Decode(message.accepted()));
  if (message.has_record()) {
    ASSIGN_OR_RETURN(reply.record, Decode(message.record()));
  }
  if (message.has_voters()) {
    ASSIGN_OR_RETURN(reply.voters, DecodeVoters(message.voters()));
  }
  return reply;
}

}  // namespace ddprun
