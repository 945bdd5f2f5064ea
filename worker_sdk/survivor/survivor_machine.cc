#include "worker_sdk/survivor/survivor_machine.h"

#include <utility>

#include "base/check.h"
#include "base/overloaded.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

// state        | AgentRequest                    | RoundOffer        | ConnectionLost    | CallerLeaves | CallerWaits
// -------------+---------------------------------+-------------------+-------------------+--------------+-----------------------------
// in the round | its round is over: EndRound,    | ignored           | consent is void   | leaving:     | -
//              | once, unless no round follows   |                   |                   | EndRound     |
// leaving      | noted                           | ignored           | noted             | -            | parked: SendParked
// parked       | noted                           | offered, if later | noted             | -            | nothing
// offered      | noted; its round is that of the | ignored           | noted             | -            | in the round: Connect; or, if
//              | offer                           |                   |                   |              | it is over: parked, SendParked
// out          | ignored                         | ignored           | ignored           | -            | -
//
// CallerWaits in any of these states, if no round follows or the connection was lost: out, Fail.
// A request counts for the worker's round only, apart from no_round_follows, which is final.
std::vector<SurvivorMachine::Effect> SurvivorMachine::Step(const Event& event) {
  if (state_ == State::kOut) return {};
  return std::visit(
      Overloaded{[this](const AgentRequest& request) { return OnRequest(request); },
                 [this](const RoundOffer& offer) -> std::vector<Effect> {
                   if (state_ != State::kParked || offer.round <= round_) return {};
                   state_ = State::kOffered;
                   round_ = offer.round;
                   rank_ = offer.rank;
                   over_ = false;
                   offer_ = offer;
                   return {};
                 },
                 [this](ConnectionLost) -> std::vector<Effect> {
                   lost_ = true;
                   agreed_ = false;
                   return {};
                 },
                 [this](const CallerLeaves& leaves) -> std::vector<Effect> {
                   DDPRUN_CHECK(state_ == State::kInRound && WhyNot(leaves.why).ok(), leaves.why);
                   state_ = State::kLeaving;
                   why_ = leaves.why;
                   return {EndRound{AbortedError(StrCat("rank ", rank_.value(), " of round ", round_.value(),
                                                        " gave up: the round is over: ", why_.message()))}};
                 },
                 [this](CallerWaits) { return OnCallerWaits(); }},
      event);
}

std::vector<SurvivorMachine::Effect> SurvivorMachine::OnRequest(const AgentRequest& request) {
  no_round_follows_ = no_round_follows_ || request.no_round_follows;
  if (request.round != round_) return {};
  if (state_ == State::kInRound) {
    agreed_ = request.may_survive;
    lost_ = lost_ && !agreed_;
  }
  if (!request.round_over || !request.may_survive || std::exchange(over_, true)) return {};
  // If no round follows, the workers may still save their state together.
  if (state_ != State::kInRound || no_round_follows_) return {};
  return {EndRound{AbortedError(StrCat("rank ", rank_.value(), " of round ", round_.value(),
                                       " gave up: the round is over: its agent has ended it"))}};
}

std::vector<SurvivorMachine::Effect> SurvivorMachine::OnCallerWaits() {
  DDPRUN_CHECK(state_ != State::kInRound, "round " << round_);
  if (const Status outlook = Outlook(); !outlook.ok()) {
    state_ = State::kOut;
    return {Fail{outlook}};
  }
  if (state_ == State::kLeaving) {
    state_ = State::kParked;
    return {SendParked{round_, rank_, why_.ToString()}};
  }
  if (state_ == State::kParked) return {};
  if (over_) {
    state_ = State::kParked;
    return {SendParked{round_, rank_,
                       StrCat("rank ", rank_.value(), " of round ", round_.value(),
                              " gave up: the round is over: it ended before this rank connected")}};
  }
  state_ = State::kInRound;
  return {Connect{*std::exchange(offer_, std::nullopt)}};
}

Status SurvivorMachine::Outlook() const {
  if (no_round_follows_) {
    return FailedPreconditionError(
        StrCat("no round follows round ", round_.value(), ": the job ends, or this node leaves it"));
  }
  if (lost_) {
    return FailedPreconditionError(
        StrCat("the connection to the agent was lost in round ", round_.value(),
               ": the agent offers this process no further round; exit, and the agent starts another one"));
  }
  return OkStatus();
}

Status SurvivorMachine::WhyNot(const Status& why) const {
  if (state_ == State::kOut) {
    return FailedPreconditionError(StrCat("this process has left round ", round_.value(), " for good"));
  }
  DDPRUN_RETURN_IF_ERROR(Outlook());
  if (!agreed_) {
    return FailedPreconditionError(StrCat("the agent has not agreed that this process survives round ",
                                          round_.value(),
                                          ": it is an older release, or has not answered yet"));
  }
  if (IsUnavailable(why) || IsAborted(why) || IsDeadlineExceeded(why)) return OkStatus();
  return FailedPreconditionError(StrCat("another round does not help: ", why.ToString()));
}

}  // namespace ddprun
