// The requests of a Proposer.
#include <algorithm>
#include <utility>

#include "rendezvous/voters/proposer.h"

namespace ddprun {
namespace {

// A request without an answer is repeated after this time.
constexpr Duration kAttempt = milliseconds(400);

}  // namespace

void Proposer::Enter(Phase phase) {
  call_->phase = phase;
  call_->phase_began = now_;
  call_->answers.clear();
  call_->phase_end.reset();
}

void Proposer::Ask(const VoterSet& set) {
  for (const Voter& voter : AllVoters(set)) Ask(voter);
}

void Proposer::Ask(const Voter& voter) {
  const auto [item, is_new] =
      call_->answers.try_emplace(voter.id, Answer{.id = voter.id, .address = voter.address});
  if (is_new) Send(item->second);
}

void Proposer::Send(Answer& answer) {
  if (now_ >= call_->wanted.end) return;  // Advance completes the call
  answer.in_flight = ++numbers_;
  answer.again.reset();
  effects_.emplace_back(SendVote{.number = answer.in_flight,
                                 .address = answer.address,
                                 .request = Request(answer),
                                 .limit = std::min(kAttempt + Duration(), call_->wanted.end - now_)});
}

VoteRequest Proposer::Request(const Answer& answer) const {
  VoteRequest request{.voter = answer.id};
  if (cached_) request.has_charter = cached_->written;
  switch (call_->phase) {
    case Phase::kAsk:
    case Phase::kProbe:
    case Phase::kPause:
      break;
    case Phase::kPrepare:
      request.kind = VoteRequest::Kind::kPrepare;
      request.ballot = call_->ballot;
      break;
    case Phase::kAccept:
      request.kind = VoteRequest::Kind::kAccept;
      request.ballot = call_->ballot;
      request.next = {call_->ballot.counter + 1, rules_.self.id};
      request.record = call_->proposal;
      request.charter_omitted = !answer.with_charter;
      if (request.charter_omitted) request.record->record.charter.clear();
      break;
  }
  return request;
}

void Proposer::SendDue() {
  for (auto& [key, answer] : call_->answers) {
    if (answer.again && now_ >= *answer.again) Send(answer);
  }
}

}  // namespace ddprun
