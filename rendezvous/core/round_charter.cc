// How a job continues under a new coordinator.

#include <algorithm>
#include <utility>

#include "rendezvous/core/round_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {

RoundMachine::RoundMachine(const Charter& charter, Takeover how, TimePoint now, RoundEffects& notes)
    : policy_(charter.rules),
      last_round_(charter.round),
      restarts_(charter.restarts),
      furthest_(charter.furthest),
      hosts_(charter.hosts),
      loss_row_(charter.losses),
      electorate_(charter.electorate),
      coordinator_host_(charter.coordinator_host),
      coordinator_node_(charter.coordinator_node),
      coordinator_token_(charter.coordinator_token),
      drains_(charter.drains),
      now_(now) {
  absent_.Resume(charter.expected_hosts);
  if (charter.end) {
    state_ = Closed{charter.end->outcome, EndedBefore{charter.end->why}};
    return;
  }
  Gathering gathering{.since = now};
  if (last_round_) {
    for (const std::string& host : electorate_) absent_.Lost(host, NotYetBack{}, now);
    Resuming& resuming = gathering.resuming.emplace();
    resuming.awaited = electorate_;
    resuming.how = how;
    // Without workers to stop, nodes join soon. Otherwise a member that does not join again may have workers until its fence
    // fires, which the old coordinator has put off before the takeover.
    resuming.end = now + (how == Takeover::kUnfenced ? policy_.lease : policy_.lease / 2);
    if (how == Takeover::kFenced) CoordinatorsNodeIsGone(resuming);
    last_was_lost_ = true;
  }
  notes.push_back(note::Resumed{
      last_round_, restarts_, gathering.resuming ? static_cast<int>(gathering.resuming->awaited.size()) : 0});
  state_ = std::move(gathering);
}

Charter RoundMachine::charter() const {
  Charter charter{.rules = policy_,
                  .round = last_round_,
                  .restarts = restarts_,
                  .furthest = furthest_,
                  .hosts = hosts_,
                  .losses = loss_row_,
                  .electorate = electorate_,
                  .coordinator_host = coordinator_host_,
                  .coordinator_node = coordinator_node_,
                  .coordinator_token = coordinator_token_,
                  .expected_hosts = absent_.Expected(),
                  .drains = drains_};
  for (const NodeId& id : membership_.to_be_drained()) {
    const Member& member = membership_.At(id);
    if (InLastRound(member) && member.rank) charter.drains[*member.rank] = *member.drain;
  }
  if (Is<Closed>()) {
    charter.end = Charter::End{outcome(), ToText(end())};
  } else if (const auto* draining = std::get_if<Draining>(&state_);
             draining != nullptr && draining->closing) {
    charter.end = Charter::End{draining->closing->outcome, ToText(draining->closing->reason)};
  }
  return charter;
}

void RoundMachine::CoordinatorsNodeIsGone(Resuming& resuming) const {
  if (std::exchange(resuming.coordinator_gone, true)) return;  // the host may have another node
  const auto host = resuming.awaited.find(coordinator_host_);
  if (host != resuming.awaited.end()) resuming.awaited.erase(host);
}

void RoundMachine::CameBack(const NodeInfo& info) {
  auto* const gathering = std::get_if<Gathering>(&state_);
  if (gathering == nullptr || !gathering->resuming || !info.last || info.last->round > *last_round_) return;
  Resuming& resuming = *gathering->resuming;
  membership_.SetPlace(info.id, info.last->round, info.last->rank, info.last->first_rank);
  if (info.last->step) furthest_.Reported(*info.last->step);
  if (info.last->round != *last_round_) return;
  resuming.ran = std::max(resuming.ran, info.last->ran);
  if (const auto it = resuming.awaited.find(info.host); it != resuming.awaited.end())
    resuming.awaited.erase(it);
}

void RoundMachine::DrainAgain(const NodeInfo& info) {
  if (!info.last || info.last->round != last_round_) return;
  const auto drain = drains_.find(info.last->rank);
  if (drain == drains_.end()) return;
  const std::string why = drain->second;
  drains_.erase(drain);
  On(DrainRequested{info.id, why});
}

bool RoundMachine::EndResuming(Gathering& s) {
  const Resuming resuming = *std::exchange(s.resuming, std::nullopt);
  if (resuming.how != Takeover::kHandedOver) {
    const std::optional<Duration> pause = CountLosses(resuming.ran, std::nullopt);
    if (!pause) return true;
    if (*pause > Duration::zero()) s.pause_end = now_ + *pause;
  }
  if (!Enough() || s.pause_end) {
    for (const auto& [id, m] : membership_.members()) membership_.SetJoinEnd(id, JoinEnd());
    return false;
  }
  Seal(MembersCameBack{membership_.count(Phase::kWaiting)});
  return true;
}

void RoundMachine::LeftElectorate(const std::string& host) {
  if (const auto it = electorate_.find(host); it != electorate_.end()) electorate_.erase(it);
  ++charter_version_;
}

void RoundMachine::On(const HandOverRequested& e) {
  if (open()) BeginHandOver({e.why});
}

void RoundMachine::BeginHandOver(CoordinatorMoves why) {
  if (hand_over_) return;
  hand_over_ = std::move(why);
  effects_.push_back(note::HandingOver{*hand_over_});
  if (!Is<Draining>()) return;
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kStopping) StopForGood(m);
  }
}

void RoundMachine::HandOverNow() {
  DismissIfTooFewAreLeft();  // rather than let them look for a coordinator that cannot start a round
  effects_.emplace_back(HandOver{.forget = membership_.size() == 0 && absent_.CountMayReturn() == 0});
  for (const auto& [id, m] : membership_.members()) DismissNode(id, Dismissal::kMoved, *hand_over_);
  effects_.push_back(note::HandedOver{membership_.size()});
  membership_ = Membership();
  notice_end_.reset();
  state_ = HandedOver{*hand_over_};
}

}  // namespace ddprun
