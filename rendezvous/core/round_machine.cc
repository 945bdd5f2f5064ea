#include "rendezvous/core/round_machine.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

// Changes within this time are combined into one notice to the waiting nodes.
constexpr Duration kNoticeDelay = seconds(1);
// After the snapshot for a notice of pre-emption, workers may take this time to exit by themselves.
constexpr Duration kExitTime = seconds(5);

// Whether `failure` counts in a round that is ending. A worker that parks in a round that did not fail has only noticed
// the end of the round before its agent.
bool Counts(const ActiveRound& round, const Failure& failure) { return round.failed || !failure.parked; }

std::optional<TimePoint> Earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

RoundMachine::RoundMachine(JobRules policy) : policy_(std::move(policy)) {}

RoundEffects RoundMachine::Step(const RoundEvent& event, TimePoint now) {
  DDPRUN_CHECK(now >= now_, "now goes back by " << (now_ - now) / milliseconds(1) << " ms");
  // A Step long after its deadline means that the coordinator itself was suspended or stalled. Messages that
  // renew leases or end the drain may be unread. All leases and the drain are therefore extended, so that no
  // node is evicted for its silence in that time.
  if (const auto due = NextDeadline(); due && now > *due + policy_.lease / 4) {
    membership_.RenewAllLeases(now + policy_.lease);
    if (auto* draining = std::get_if<Draining>(&state_); draining != nullptr && draining->end) {
      draining->end = std::max(*draining->end, now + policy_.lease);
    }
  }
  now_ = now;
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  if (open()) {
    ExpireLeases();
    ExpireJoins();
    ExpireDrain();
    Advance();
    DismissIfTooFewCanJoin();
  }
  if (notice_end_ && now_ >= *notice_end_) TellWaiters();
  return std::exchange(effects_, {});
}

std::optional<TimePoint> RoundMachine::NextDeadline() const {
  const std::optional<TimePoint> of_state =
      std::visit([this](const auto& s) { return DeadlineOf(s); }, state_);
  return Earlier(Earlier(membership_.next_lease_end(), notice_end_), of_state);
}

std::optional<TimePoint> RoundMachine::DeadlineOf(const Gathering& s) const {
  if (hand_over_ || WaitsForLeaver()) return std::nullopt;
  if (WaitsForMembers(s)) return s.resuming->end;
  return Earlier(s.pause_end, Enough() ? s.last_call_end : membership_.next_join_end());
}

std::optional<TimePoint> RoundMachine::DeadlineOf(const Running& s) const {
  return s.asked ? s.asked->end : Earlier(s.round.hang.NextDeadline(), s.last_call_end);
}

ActiveRound& RoundMachine::active() {
  if (auto* running = std::get_if<Running>(&state_)) return running->round;
  return In<Draining>().round;
}

std::string RoundMachine::StateForCheck() const {
  return absl::StrCat("state ", state_.index(), ", last round ", last_round_ ? last_round_->value() : -1,
                      ", members ", membership_.size(), ", in a round ", membership_.in_round());
}

// --- Events

void RoundMachine::On(const NodeJoined& e) {
  const NodeInfo& info = e.info;
  if (const auto* closed = std::get_if<Closed>(&state_)) {
    const bool succeeded = closed->outcome == Dismissal::kSucceeded;
    // An agent that is new to the job has done nothing for its success.
    const bool too_late = succeeded && !info.last;
    return DismissNode(info.id, too_late ? Dismissal::kRejected : closed->outcome, JobIsClosed{closed->why});
  }
  if (const auto* handed_over = std::get_if<HandedOver>(&state_))
    return DismissNode(info.id, Dismissal::kMoved, handed_over->why);
  if (const auto* draining = std::get_if<Draining>(&state_); draining != nullptr && draining->closing) {
    return DismissNode(info.id, draining->closing->outcome, JobIsClosing{draining->closing->reason});
  }
  if (membership_.Find(info.id) != nullptr) {
    effects_.push_back(
        Refuse{info.id, absl::AbortedError(absl::StrCat("node ", info.id.value(), " has already joined"))});
    return;
  }
  if (info.requested_rank) {
    if (*info.requested_rank >= policy_.max_nodes) {
      return DismissNode(info.id, Dismissal::kRejected,
                         RankTooHigh{*info.requested_rank, info.host, policy_.max_nodes});
    }
    if (const Member* other = membership_.FindRequested(*info.requested_rank)) {
      if (other->info.host != info.host) {
        return DismissNode(info.id, Dismissal::kRejected,
                           RankTaken{*info.requested_rank, info.host, NameOf(*other)});
      }
      // A new agent was started on the same host. It replaces the earlier node, even if the lease of that
      // node has not expired. The earlier node must not return.
      const NodeMissed replaced{NameOf(*other), Replaced{.by = info.id}};
      DismissNode(replaced.node.id, Dismissal::kRejected, replaced);
      Lose(replaced);
    }
  }
  const Member& member = membership_.Add(info, now_ + policy_.lease, JoinEnd());
  if (policy_.exclude_after > 0 && hosts_.failures(info.host) >= policy_.exclude_after) {
    membership_.SetExcluded(info.host);
  }
  const auto expected = absent_.CountExpected();
  absent_.Expect(e.expected_hosts);
  if (absent_.CountExpected() != expected) ++charter_version_;
  absent_.Came(info.host);
  CameBack(info);
  effects_.push_back(note::NodeJoined{NameOf(member), info.nproc});
  // The first waiting node is notified immediately. Notices about later joins are batched, because notifying
  // every waiting node of every join would take O(n^2) notices.
  const bool first = membership_.count(Phase::kWaiting) == 1;
  if (auto* gathering = std::get_if<Gathering>(&state_); first && gathering != nullptr) {
    gathering->since = now_;
  }
  TellWaitersWithin(first ? Duration::zero() : kNoticeDelay);
  DrainAgain(info);
}

void RoundMachine::On(const NodeHeard& e) {
  const Member* member = membership_.Find(e.node);
  if (member == nullptr) {
    effects_.push_back(
        Refuse{e.node, absl::AbortedError(absl::StrCat("node ", e.node.value(), " is not in the job"))});
    return;
  }
  membership_.RenewLease(e.node, now_ + policy_.lease);
  if (!e.progress || !InRound(*member) || e.progress->round != active().number) return;
  membership_.SetProgress(e.node, *e.progress);
  if (e.progress->step) Reported(active(), *e.progress->step);
}

const Member* RoundMachine::ValidateSender(const NodeId& id, Round round) {
  const Member* member = membership_.Find(id);
  if (member == nullptr) {
    effects_.push_back(
        Refuse{id, absl::AbortedError(absl::StrCat("node ", id.value(), " is not in the job"))});
    return nullptr;
  }
  membership_.RenewLease(id, now_ + policy_.lease);
  if (!InRound(*member) || round != last_round_) {
    const std::string at =
        last_round_ ? absl::StrCat("the job is at round ", last_round_->value()) : "no round has begun";
    effects_.push_back(Refuse{id, absl::AbortedError(absl::StrCat(ToText(NameOf(*member)), " spoke of round ",
                                                                  round.value(), ", but ", at))});
    return nullptr;
  }
  return member;
}

void RoundMachine::Reported(ActiveRound& round, int64_t step) {
  round.step_reported = true;
  furthest_.Reported(step);
}

void RoundMachine::On(const WorkersFailed& e) {
  if (ValidateSender(e.node, e.round) == nullptr) return;
  ActiveRound& round = active();
  if (e.failure.step) Reported(round, *e.failure.step);
  const bool stopped = round.notice && e.failure.parked;
  // A worker that parks because the round ends has not failed.
  if ((Is<Running>() && !stopped) || Counts(round, e.failure)) round.losses.ToldAtOnce(e.node, e.failure);
  if (Is<Running>() && stopped) return Drain(StoppedAfterNotice{*round.notice});
  if (!Is<Running>()) return;  // The round is already ending, and at most one restart is charged.
  round.failed = true;
  last_failure_ = e.failure.cause;
  effects_.push_back(note::WorkersFailed{e.failure.cause});
  Drain(FailureReported{e.failure.cause});
}

void RoundMachine::On(const WorkersSucceeded& e) {
  const Member* member = ValidateSender(e.node, e.round);
  if (member == nullptr || member->phase != Phase::kRunning) return;
  active().finishing = true;
  active().unfinished |= !e.finished;
  membership_.SetPhase(e.node, Phase::kSucceeded);
  active().hang.Remove(e.node);
}

void RoundMachine::On(const NodeReady& e) {
  const Member* member = ValidateSender(e.node, e.round);
  if (member == nullptr || member->phase != Phase::kStopping) return;
  ActiveRound& round = active();
  for (const Failure& failure : e.failures) {
    if (failure.step) Reported(round, *failure.step);
  }
  if (e.step) Reported(round, *e.step);
  std::vector<Failure> failures = e.failures;
  std::erase_if(failures, [&round](const Failure& failure) { return !Counts(round, failure); });
  round.losses.Told(e.node, std::move(failures));
  // If the job closes, all its nodes end with the same reason.
  const bool pre_empted = member->notice && !In<Draining>().closing;
  if (pre_empted || member->drain) return LetGo(e.node);
  membership_.SetPhase(e.node, Phase::kWaiting);
  membership_.SetStorePort(e.node, e.store_port);
  membership_.SetJoinEnd(e.node, JoinEnd());
}

void RoundMachine::On(const SnapshotTaken& e) {
  if (ValidateSender(e.node, e.round) == nullptr) return;
  Reported(active(), e.step);
  auto* const running = std::get_if<Running>(&state_);
  if (running == nullptr || !running->asked) return;
  effects_.push_back(note::SnapshotTaken{NameOf(*membership_.Find(e.node)), e.step});
  if (SnapshotAsked& asked = *running->asked; asked.stops) {
    asked.end = std::min(asked.end, now_ + kExitTime);
    asked.step = std::max(e.step, asked.step.value_or(e.step));
    return;
  }
  Drain(SnapshotCame{running->asked->why, e.step});
}

void RoundMachine::On(const NodeLeaving& e) {
  const Member* member = membership_.Find(e.node);
  if (member == nullptr || member->leaving) return;
  membership_.RenewLease(e.node, now_ + policy_.lease);
  membership_.SetLeaving(e.node);
  const NodeStopping stopping{NameOf(*member), e.reason};
  effects_.push_back(note::NodeLeaving{stopping});
  if (Movable(member->info)) BeginHandOver({ToText(stopping)});
  if (member->phase == Phase::kRunning || member->phase == Phase::kStopping) {
    active().losses.Lost(ToText(stopping));
  }
  if (Is<Running>() && member->phase == Phase::kRunning) Drain(stopping);
}

void RoundMachine::On(const NodeLeft& e) {
  if (const Member* member = membership_.Find(e.node)) {
    if (InLastRound(*member)) LeftElectorate(member->info.host);
    const NodeMissed left{NameOf(*member), Left{e.reason}};
    if (Movable(member->info)) BeginHandOver({ToText(left)});
    Remove(left);
    last_was_lost_ = false;
  }
}

void RoundMachine::On(const NodeLost& e) {
  if (const Member* member = membership_.Find(e.node)) {
    Lose({NameOf(*member), ConnectionLost{e.reason}});
  }
}

void RoundMachine::On(const NodeGone& e) {
  if (const Member* member = membership_.Find(e.node)) {
    Remove({NameOf(*member), AgentGone{}});
  } else if (auto* gathering = std::get_if<Gathering>(&state_);
             gathering != nullptr && gathering->resuming && e.node == coordinator_node_) {
    CoordinatorsNodeIsGone(*gathering->resuming);
  }
}

void RoundMachine::On(const DrainRequested& e) {
  const Member* member = membership_.Find(e.node);
  if (member == nullptr || member->drain) return;
  membership_.SetDrain(e.node, e.reason);
  ++charter_version_;
  effects_.push_back(note::DrainRequested{{NameOf(*member), e.reason}});
  // The node has no running workers, so the round need not end.
  if (member->phase == Phase::kWaiting || member->phase == Phase::kSucceeded) return LetGo(e.node);
  if (member->phase == Phase::kStopping) StopForGood(*member);
}

void RoundMachine::On(const CloseRequested& e) {
  if (!open()) return;
  const auto* draining = std::get_if<Draining>(&state_);
  const bool again = draining != nullptr && draining->closing;
  if (again || e.at_once || membership_.in_round() == 0) {
    const CloseRequested request = again ? *draining->closing : e;
    if (draining != nullptr) ShareReport(draining->round, ToText(request.reason));
    return Close(request.outcome, request.reason);
  }
  if (Is<Running>()) {
    Drain(e.reason, /*closing=*/true);
  } else {
    for (const auto& [id, m] : membership_.members()) {
      if (m.phase == Phase::kStopping) StopForGood(m);
    }
  }
  In<Draining>().closing = e;
  ++charter_version_;
  effects_.push_back(note::JobClosing{e.reason});
}

void RoundMachine::StopForGood(const Member& member) {
  const Draining& draining = In<Draining>();
  effects_.push_back(StopWorkers{member.info.id, draining.round.number, draining.end_reason,
                                 /*no_round_follows=*/true});
}

bool RoundMachine::ExitedForGood(const MissedReason& why) const {
  return policy_.admission == Admission::kExpected &&
         (std::holds_alternative<Left>(why) || std::holds_alternative<AgentGone>(why) ||
          std::holds_alternative<JoinTimedOut>(why) || std::holds_alternative<TooFewLeft>(why));
}

void RoundMachine::Missed(const Member& member, const NodeMissed& missed) {
  if (ExitedForGood(missed.why)) {
    ++charter_version_;
    absent_.TakenOut(member.info.host);
  } else if (InLastRound(member)) {
    absent_.Lost(member.info.host, missed.why, now_);
  } else {
    absent_.Went(member.info.host);
  }
  effects_.push_back(missed);
  const bool had_workers = member.phase == Phase::kRunning || member.phase == Phase::kStopping;
  if (had_workers) active().hang.Remove(member.info.id);
  if (had_workers && !member.leaving) active().losses.Lost(ToText(missed));
  if (had_workers && !member.leaving && !member.notice) {
    ++active().unplanned_losses;
    Blame(member.info.host);
  }
  if (member.notice && member.notice->back_at)
    back_at_ = std::max(*member.notice->back_at, back_at_.value_or(now_));
  if (membership_.count(Phase::kWaiting) > 0) TellWaitersWithin(kNoticeDelay);
}

void RoundMachine::Blame(const std::string& host) {
  ++charter_version_;
  if (hosts_.Failed(host) != policy_.exclude_after) return;
  membership_.SetExcluded(host);
  effects_.push_back(note::HostExcluded{host, policy_.exclude_after});
}

int RoundMachine::MinNodes() const {
  if (policy_.quorum != Quorum::kMajority) return policy_.min_nodes;
  return std::max(policy_.min_nodes, (static_cast<int>(electorate_.size()) + 1) / 2);
}

void RoundMachine::Remove(const NodeMissed& missed) {
  const Member& member = membership_.At(missed.node.id);
  const Phase phase = member.phase;
  if (phase == Phase::kLost) {
    if (ExitedForGood(missed.why)) {
      ++charter_version_;
      absent_.Exited(member.info.host);
    }
    effects_.push_back(missed);
  } else {
    Missed(member, missed);
  }
  membership_.Remove(missed.node.id);
  last_was_lost_ = true;
  if (Is<Running>() && phase == Phase::kRunning) Drain(missed);
}

void RoundMachine::Lose(const NodeMissed& missed) {
  const Member& member = membership_.At(missed.node.id);
  if (member.phase == Phase::kLost) return;
  // The coordinator's own agent has no fence. It disconnects only after its workers have exited.
  const bool has_workers = member.phase == Phase::kRunning || member.phase == Phase::kStopping;
  if (!has_workers || !member.info.leased) return Remove(missed);
  Missed(member, missed);
  membership_.SetLost(missed.node.id);
  if (Is<Running>()) Drain(missed);
}

void RoundMachine::LetGo(const NodeId& id) {
  const Member& member = membership_.At(id);
  DDPRUN_CHECK(member.drain || member.notice, "node " << id << " is not to be taken out");
  if (InLastRound(member)) LeftElectorate(member.info.host);
  last_was_lost_ = member.notice && member.notice->back_at;
  if (last_was_lost_) {
    const TimePoint back_at = *member.notice->back_at;
    absent_.Lost(member.info.host, PreemptedForNow{std::max(back_at - now_, Duration::zero())}, now_);
    back_at_ = std::max(back_at, back_at_.value_or(back_at));
    // Nodes that wait already wait for this one, too.
    for (const auto& [other, m] : membership_.members()) {
      membership_.SetJoinEnd(other, std::max(m.join_end, *back_at_ + policy_.join_timeout));
    }
  } else {
    ++charter_version_;
    absent_.TakenOut(member.info.host);
  }
  std::string why;
  if (member.notice) {
    const NodePreempted preempted{NameOf(member), member.notice->why};
    DismissNode(id, Dismissal::kPreempted, preempted);
    effects_.push_back(note::NodePreempted{preempted});
    why = ToText(preempted);
  } else {
    const TakenOut taken_out{NameOf(member), *member.drain};
    DismissNode(id, Dismissal::kDrained, taken_out);
    effects_.push_back(note::NodeDrained{taken_out});
    why = ToText(taken_out);
  }
  const bool movable = Movable(member.info);
  membership_.Remove(id);
  if (movable) BeginHandOver({std::move(why)});
}

void RoundMachine::ExpireLeases() {
  for (const NodeId& id : membership_.ExpiredLeases(now_)) {
    const Member& member = membership_.At(id);
    const NodeMissed missed{NameOf(member), LeaseExpired{policy_.lease, now_ - member.lease_end}};
    if (member.phase != Phase::kLost) DismissNode(id, Dismissal::kEvicted, missed);
    Remove(missed);
  }
}

void RoundMachine::ExpireJoins() {
  // If enough nodes are waiting, join deadlines do not apply: the round is sealed when the last call ends.
  if (!Is<Gathering>() || Enough() || WaitsForMembers(In<Gathering>())) return;
  const int joined = membership_.count(Phase::kWaiting);
  for (const NodeId& id : membership_.ExpiredJoins(now_)) {
    EndWait(id, TooFewJoined{joined, MinNodes(), policy_.join_timeout}, JoinTimedOut{policy_.join_timeout});
  }
}

void RoundMachine::DismissIfTooFewCanJoin() {
  if (Is<Gathering>() && !WaitsForMembers(In<Gathering>())) DismissIfTooFewAreLeft();
}

void RoundMachine::DismissIfTooFewAreLeft() {
  if (policy_.admission != Admission::kExpected) return;
  const TooFewLeft why{membership_.count(Phase::kWaiting), MinNodes()};
  const std::optional<int> expected = absent_.CountExpected();
  if (!expected || why.nodes + *expected >= why.min_nodes) return;
  for (const NodeId& id : membership_.ExpiredJoins(TimePoint::max())) EndWait(id, why, why);
}

void RoundMachine::EndWait(const NodeId& id, DismissReason why, MissedReason missed) {
  DismissNode(id, Dismissal::kJoinTimeout, std::move(why));
  Remove({NameOf(membership_.At(id)), std::move(missed)});
  last_was_lost_ = false;
}

void RoundMachine::ExpireDrain() {
  auto* const draining = std::get_if<Draining>(&state_);
  if (draining == nullptr || !draining->end || now_ < *draining->end) return;
  draining->end.reset();
  std::vector<NodeId> late;
  for (const auto& [id, m] : membership_.members()) {
    // The coordinator's own agent has no fence, so it is never evicted. Its own timeouts ensure that it
    // answers.
    if (m.phase == Phase::kStopping && m.info.leased) late.push_back(id);
  }
  for (const NodeId& id : late) {
    const NodeMissed missed{NameOf(membership_.At(id)), StopTimedOut{draining->round.number}};
    DismissNode(id, Dismissal::kEvicted, missed);
    // This is the last renewal of the lease. The node's fence kills the workers before the lease ends.
    membership_.RenewLease(id, now_ + policy_.lease);
    Lose(missed);
  }
}

}  // namespace ddprun
