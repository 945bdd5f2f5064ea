#include "rendezvous/voters/voter_register.h"

#include <algorithm>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/utf8.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

constexpr Duration kAnnounceLimit = seconds(1);
// Between two attempts to have as many voters as there are candidates. The pause doubles from the first of these times to the second one.
constexpr Duration kFirstChangePause = seconds(1);
constexpr Duration kLongestChangePause = seconds(10);

}  // namespace

VoterRegister::VoterRegister(Parts parts)
    : parts_(std::move(parts)),
      acceptor_(parts_.self.id),
      proposer_({.self = parts_.self, .seed = parts_.seed},
                parts_.founds
                    ? VoterSet{.number = 1, .now = {.voters = {parts_.self}, .tie_breaker = parts_.self.id}}
                    : VoterSet()),
      known_(voters().number) {}

void VoterRegister::Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) {
  Add({.limit = limit, .done = [done = std::move(done)](absl::StatusOr<SwapResult> result) {
         if (!result.ok()) return done(result.status());
         done(std::move(result->current));
       }});
}

void VoterRegister::Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
                         Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) {
  SwapWanted swap{.expected = {.version = expected.version, .exists = expected.exists},
                  .lead = std::move(lead),
                  .charter = std::move(charter)};
  if (parts_.timer->Now() >= next_change_) swap.candidates = candidates_;
  Add({.limit = limit, .swap = std::move(swap), .done = std::move(done)});
}

void VoterRegister::SetCandidates(std::vector<std::string> addresses) {
  candidates_ = std::move(addresses);
  next_change_ = TimePoint();
  change_pause_ = Duration::zero();
}

void VoterRegister::Add(Call call) {
  call.end = parts_.timer->Now() + call.limit;
  calls_.push_back(std::move(call));
  SetTimer();
}

void VoterRegister::Found(const std::vector<std::string>& addresses, std::unique_ptr<WakeTimer> timer,
                          Duration limit, std::function<void(absl::Status)> done) {
  founding_.emplace(parts_.self, addresses, parts_.client.get(), std::move(timer));
  founding_->Start(limit, [this, done = std::move(done)](absl::StatusOr<VoterSet> founded) {
    const auto call = done;  // the end of `founding_` is that of this function
    if (founded.ok()) Learn(*founded);
    const absl::Status status = founded.status();
    founding_.reset();
    call(status);
  });
}

void VoterRegister::Announce(const std::string& address) {
  if (address == parts_.self.address) return;
  parts_.client->Send(address, {.voters = voters()}, kAnnounceLimit,
                      [this, address](const absl::StatusOr<VoteReply>& reply) {
                        if (reply.ok() && reply->witness) {
                          witnesses_.insert(address);
                        } else {
                          witnesses_.erase(address);
                        }
                      });
}

std::vector<std::string> VoterRegister::Witnesses() const {
  std::set<std::string> addresses = witnesses_;
  for (const Voter& voter : voters().now.voters) {
    if (voter.witness) addresses.insert(voter.address);
  }
  return {addresses.begin(), addresses.end()};
}

void VoterRegister::FoundElsewhere(const VoterSet& voters) {
  founded_in_vain_ = true;
  Learn(voters);
}

void VoterRegister::Learn(const VoterSet& voters) {
  if (voters.number <= proposer_.voters().number) return;
  if (proposer_.busy()) {
    if (!learnt_ || learnt_->number < voters.number) learnt_ = voters;
    return;
  }
  proposer_.Learn(voters);
  // Later, because the caller may be a handler of a message.
  SetTimer();
}

absl::StatusOr<proto::VoteReply> VoterRegister::Answer(const proto::VoteRequest& request) {
  if (request.run_id() != parts_.run_id) {
    return absl::NotFoundError(
        absl::StrCat("this process has job ", parts_.run_id, ", not ", Utf8Head(request.run_id(), 100)));
  }
  ASSIGN_OR_RETURN(const VoteRequest vote, DecodeVoteRequest(request));
  // The voters of a job change when its first round has several nodes.
  if (parts_.founds && voters().number == 1 && vote.voters && vote.voters->number > 1)
    FoundElsewhere(*vote.voters);
  if (founding_ && vote.voters && vote.voters->number > 0) founding_->Learn(*vote.voters);
  ASSIGN_OR_RETURN(VoteReply reply, acceptor_.Vote(vote));
  // The voters that this process knows may exit next, for example after a hand-over.
  if (vote.kind == VoteRequest::Kind::kAccept && reply.granted && vote.record)
    Learn(CertainlyChosen(vote.record->voters));
  if (vote.wants_voters && voters().number > 0) reply.voters = voters();
  return EncodeVoteReply(reply);
}

void VoterRegister::SetTimer() {
  std::optional<TimePoint> next = proposer_.NextDeadline();
  const bool begins = !proposer_.busy() && !calls_.empty();
  if (begins || known_ != voters().number) next = parts_.timer->Now();
  parts_.timer->Set(next, [this] { Wake(); });
}

void VoterRegister::Wake() {
  if (known_ != voters().number) {
    known_ = voters().number;
    if (parts_.on_voters) parts_.on_voters(voters());
  }
  if (proposer_.busy() || calls_.empty()) return Step(ProposerTick{});
  const Call& call = calls_.front();
  if (!call.swap || founded_in_vain_) return Step(ReadWanted{call.end});
  Complete(*calls_.front().swap);
  SwapWanted swap = *call.swap;
  swap.end = call.end;
  Step(swap);
}

void VoterRegister::Complete(SwapWanted& swap) const {
  if (!parts_.leading) return;
  Parts::Leading leading = parts_.leading();
  if (leading.left <= Duration::zero()) return;
  swap.leads_until = parts_.timer->Now() + leading.left;
  swap.ended = std::move(leading.ended);
  if (!swap.candidates.empty() || parts_.timer->Now() < next_change_) return;
  std::vector<std::string> others;
  const std::vector<Voter>& now = voters().now.voters;
  for (const Voter& voter : now) {
    if (!swap.Ended(voter)) others.push_back(voter.address);
  }
  // Nodes that have ended need not be voters until the next round is sealed.
  if (others.size() < now.size()) swap.candidates = std::move(others);
}

void VoterRegister::DelayChange() {
  change_pause_ = std::clamp<Duration>(2 * change_pause_, kFirstChangePause, kLongestChangePause);
  next_change_ = parts_.timer->Now() + change_pause_;
}

void VoterRegister::Step(const ProposerEvent& event) {
  std::deque<ProposerEvent> events = {event};
  std::optional<absl::StatusOr<SwapResult>> result;
  while (!events.empty()) {
    const ProposerEvent next = std::move(events.front());
    events.pop_front();
    for (ProposerEffect& effect : proposer_.Step(next, parts_.timer->Now())) {
      if (auto* const done = std::get_if<CallDone>(&effect)) {
        result = std::move(done->result);
        continue;
      }
      const SendVote& vote = std::get<SendVote>(effect);
      if (vote.address == parts_.self.address) {
        events.emplace_back(VoteDone{vote.number, acceptor_.Vote(vote.request)});
        continue;
      }
      parts_.client->Send(vote.address, vote.request, vote.limit,
                          [this, number = vote.number](absl::StatusOr<VoteReply> reply) {
                            Step(VoteDone{number, std::move(reply)});
                          });
    }
  }
  const bool learns = learnt_ && !proposer_.busy();
  if (learns) {
    proposer_.Learn(*learnt_);
    learnt_.reset();
  }
  if (!result) return SetTimer();
  const bool changes = calls_.front().swap && !calls_.front().swap->candidates.empty();
  // A change that takes too long must not keep the leader from renewing its lead.
  if (changes && !result->ok()) DelayChange();
  if (result->ok()) {
    // The caller learns a version of this register.
    if (!learns) founded_in_vain_ = false;
    if (changes && (*result)->swapped) {
      // A candidate that has not answered is asked again some time later.
      DelayChange();
      const size_t wanted = std::min(candidates_.size(), Proposer::kMaxVoters);
      if (voters().now.voters.size() >= wanted) candidates_.clear();
    }
  }
  const auto done = std::move(calls_.front().done);
  calls_.pop_front();
  SetTimer();
  // The last use of this object, which its callback may destroy.
  done(*std::move(result));
}

}  // namespace ddprun
