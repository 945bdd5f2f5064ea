// The state transitions of RoundMachine, and its reports and notices to nodes.

#include <algorithm>
#include <memory>
#include <utility>

#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/core/round_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

// Interval between notices to waiting nodes while too few nodes have joined.
constexpr Duration kReminder = seconds(10);

}  // namespace

// --- Transitions

void RoundMachine::Advance() {
  if (const auto* s = std::get_if<Draining>(&state_)) AdvanceDraining(*s);
  if (auto* s = std::get_if<Gathering>(&state_)) AdvanceGathering(*s);
  if (auto* s = std::get_if<Running>(&state_)) AdvanceRunning(*s);
}

void RoundMachine::AdvanceGathering(Gathering& s) {
  if (const Member* const host = HostWithNotice()) {
    return Close(Dismissal::kPreempted, HostPreempted{{NameOf(*host), host->notice->why}});
  }
  if (hand_over_) {
    if (membership_.leaving_waiting() == 0) HandOverNow();
    return;
  }
  if (WaitsForLeaver()) return;
  if (s.resuming) {
    if (WaitsForMembers(s) && now_ < s.resuming->end) return;
    if (EndResuming(s)) return;
  }
  const bool had_pause = s.pause_end.has_value();
  if (had_pause && now_ >= *s.pause_end) s.pause_end.reset();
  if (!Enough()) {
    s.last_call_end.reset();
    return;
  }
  if (s.pause_end) return;
  const int n = membership_.count(Phase::kWaiting);
  if (had_pause) return Seal(PauseOver{});
  if (n >= policy_.max_nodes || absent_.AllExpectedPresent())
    return Seal(AllJoined{std::min(n, policy_.max_nodes)});
  if (!s.last_call_end) s.last_call_end = now_ + (last_round_ ? policy_.last_call : policy_.first_last_call);
  if (now_ >= *s.last_call_end) {
    Seal(LastCallOver{n, policy_.max_nodes});
  }
}

void RoundMachine::AdvanceRunning(Running& s) {
  const int members = membership_.in_round();
  // If the round has no members left, each member left, was lost or was drained after its workers succeeded.
  if (members == 0) {
    Gather(std::nullopt);
    return AdvanceGathering(In<Gathering>());
  }
  if (membership_.count(Phase::kSucceeded) == members) {
    // Workers that exit with 0 after a notice have stopped, unless they say that the job has finished.
    if (!s.round.notice || !s.round.unfinished) return Close(Dismissal::kSucceeded, AllSucceeded{});
    if (s.asked && s.asked->step) return Drain(SnapshotCame{s.asked->why, *s.asked->step});
    return Drain(StoppedAfterNotice{*s.round.notice});
  }
  if (hand_over_) return Drain(*hand_over_);
  AdvanceHang();
  if (!Is<Running>()) return;
  if (!LetsIn(s)) {
    s.last_call_end.reset();
  } else if (!s.last_call_end) {
    s.last_call_end = now_ + policy_.last_call;
  }
  if (const auto why = WhyInterrupt(s)) return Interrupt(s, *why);
  s.asked.reset();
}

bool RoundMachine::LetsIn(const Running& s) const {
  const int members = membership_.in_round();
  const bool room = UsableNodes(policy_, members + Newcomers()) > members;
  return room && !s.round.finishing && policy_.scale_up != ScaleUp::kNever;
}

std::optional<InterruptReason> RoundMachine::WhyInterrupt(const Running& s) const {
  if (!membership_.noticed().empty()) {
    const Member& member = membership_.At(*membership_.noticed().begin());
    return NodePreempted{NameOf(member), member.notice->why};
  }
  if (!membership_.to_be_drained().empty()) {
    const Member& member = membership_.At(*membership_.to_be_drained().begin());
    return TakenOut{NameOf(member), *member.drain};
  }
  if (!s.last_call_end) return std::nullopt;
  const int newcomers = Newcomers();
  const bool more_may_come =
      membership_.in_round() + newcomers < policy_.max_nodes && !absent_.AllExpectedPresent();
  if (more_may_come && now_ < *s.last_call_end) return std::nullopt;
  return NewcomersWait{newcomers};
}

void RoundMachine::Interrupt(Running& s, const InterruptReason& why) {
  if (std::holds_alternative<NodePreempted>(why)) return InterruptForNotice(s, why);
  if (s.asked) {
    if (now_ < s.asked->end) return;
    return Drain(NoSnapshotCame{s.asked->why, policy_.snapshot_timeout});
  }
  const bool wanted = policy_.scale_up == ScaleUp::kAtSnapshot || !membership_.to_be_drained().empty();
  // Workers that report no step are not expected to answer.
  if (!wanted || !s.round.step_reported) return Drain(why);
  s.asked = SnapshotAsked{.why = why, .since = now_, .end = now_ + policy_.snapshot_timeout};
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kRunning) effects_.push_back(TakeSnapshot{id, s.round.number, why});
  }
  effects_.push_back(note::SnapshotAsked{s.round.number, why});
  TellWaitersWithin(Duration::zero());
}

void RoundMachine::AdvanceDraining(const Draining& s) {
  if (membership_.in_round() > 0) return;
  const bool leaver = hand_over_ ? membership_.leaving_waiting() > 0 : WaitsForLeaver();
  if (leaver && !s.closing) return;
  if (s.closing) {
    const CloseRequested request = *s.closing;
    ShareReport(s.round, ToText(request.reason));
    return Close(request.outcome, request.reason);
  }
  JobReport report = s.round.losses.Report(s.round.number);
  RestartDecision decision{Cost::kNothing, NothingFailed{}};
  if (s.round.failed && s.round.notice) {
    decision.why = FailedAfterNotice{};
  } else if (s.round.failed) {
    DDPRUN_CHECK(!report.groups.empty(), StateForCheck());
    const Failure& cause = report.groups[0].first;
    // Only what is proven by the process itself is held against a host.
    const bool on_host = !std::holds_alternative<Hung>(cause.exit) || s.round.hang_proven;
    if (cause.origin == FailureOrigin::kOwn && on_host) Blame(cause.host);
    last_failure_ = cause.cause;
    decision = DecideRestart(policy_, cause, restarts_, furthest_, s.round.losses.num_lost_nodes());
    if (decision.cost == Cost::kRestart) {
      ++restarts_;
      ++charter_version_;
      furthest_.Restarted();
    }
  }
  ShareReport(std::move(report), ToText(decision.why));
  if (decision.cost == Cost::kJob) {
    return Close(Dismissal::kFailed, FailedForGood{last_failure_, decision.why});
  }
  std::optional<TimePoint> pause_end;
  if (s.round.unplanned_losses > 0) {
    const std::optional<Duration> pause = CountLosses(now_ - s.round.sealed_at, s.end_reason);
    if (!pause) return;
    if (*pause > Duration::zero()) pause_end = now_ + *pause;
  }
  if (hand_over_) return HandOverNow();
  if (!Enough() || pause_end) return Gather(pause_end);
  Seal(MembersStopped{});
}

std::optional<Duration> RoundMachine::CountLosses(Duration ran, const std::optional<EndOfRound>& why) {
  ++charter_version_;
  loss_row_.Lost(ran, furthest_.step());
  if (loss_row_.count() >= LossStreak::kMax) {
    Close(Dismissal::kFailed, LossesInARow{loss_row_.count(), why});
    return std::nullopt;
  }
  const Duration pause = loss_row_.pause();
  if (pause > Duration::zero()) effects_.push_back(note::Paused{loss_row_.count(), pause});
  return pause;
}

void RoundMachine::Seal(const SealReason& why) {
  DDPRUN_CHECK(Is<Gathering>() || Is<Draining>(), StateForCheck());
  const Round round(last_round_ ? last_round_->value() + 1 : 0);
  last_round_ = round;
  back_at_.reset();
  state_ = Running{.round = {.number = round, .sealed_at = now_}};
  absent_.Sealed();
  std::vector<Seat> seats = PlanRound(policy_, membership_, round, restarts_);
  ++charter_version_;
  electorate_.clear();
  drains_.clear();
  coordinator_host_.clear();
  coordinator_node_ = {};
  coordinator_token_.clear();
  for (const Seat& seat : seats) {
    const NodeInfo& info = membership_.At(seat.node).info;
    electorate_.insert(info.host);
    if (!info.hosts) continue;
    coordinator_host_ = info.host;
    coordinator_node_ = info.id;
    coordinator_token_ = info.gone_token;
  }
  effects_.push_back(
      note::RoundSealed{round, static_cast<int>(seats.size()), seats[0].assignment.world_size, why});
  for (Seat& seat : seats) {
    membership_.SetPhase(seat.node, Phase::kRunning);
    membership_.SetPlace(seat.node, round, seat.assignment.group_rank, seat.assignment.first_rank);
    membership_.SetProgress(seat.node, {});
    In<Running>().round.hang.Add(seat.node, membership_.At(seat.node).info.host, seat.assignment.first_rank);
    effects_.push_back(Assign{std::move(seat.node), std::move(seat.assignment), why});
  }
  notice_end_.reset();
  if (membership_.count(Phase::kWaiting) > 0) notice_end_ = now_;
}

void RoundMachine::Drain(EndOfRound why, bool closing) {
  Running& ending = In<Running>();
  std::vector<NodeId> in_round;
  // The limit is the longest stop timeout, because nodes may have different grace periods.
  Duration limit = Duration::zero();
  for (const auto& [id, m] : membership_.members()) {
    if (!InRound(m) || m.phase == Phase::kLost) continue;
    in_round.push_back(id);
    limit = std::max(limit, m.info.stop_timeout);
  }
  const Round round = ending.round.number;
  const Member* const host = HostWithNotice();
  for (const NodeId& id : in_round) {
    membership_.SetPhase(id, Phase::kStopping);
    const Member& member = membership_.At(id);
    const bool for_good = closing || host != nullptr || hand_over_ || member.drain || member.notice;
    effects_.push_back(StopWorkers{id, round, why, for_good});
  }
  effects_.push_back(note::RoundEnded{round, why});
  Draining draining{.round = std::move(ending.round), .end_reason = std::move(why), .end = now_ + limit};
  if (host != nullptr) {
    const HostPreempted reason{{NameOf(*host), host->notice->why}};
    draining.closing = CloseRequested{Dismissal::kPreempted, reason};
    ++charter_version_;
    effects_.push_back(note::JobClosing{reason});
  }
  state_ = std::move(draining);
}

void RoundMachine::Gather(std::optional<TimePoint> pause_end) {
  state_ = Gathering{.since = now_, .pause_end = pause_end};
  for (const auto& [id, m] : membership_.members()) membership_.SetJoinEnd(id, JoinEnd());
  notice_end_ = now_;
  effects_.push_back(note::WaitingForNodes{WhatIsWaitedFor(now_)});
}

void RoundMachine::Close(Dismissal outcome, EndOfJob why) {
  ++charter_version_;
  for (const auto& [id, m] : membership_.members()) DismissNode(id, outcome, why);
  effects_.push_back(note::JobClosed{why});
  membership_ = Membership();
  notice_end_.reset();
  state_ = Closed{outcome, std::move(why)};
}

// --- Reports and notices

void RoundMachine::ShareReport(const ActiveRound& round, const std::string& outcome) {
  ShareReport(round.losses.Report(round.number), outcome);
}

void RoundMachine::ShareReport(JobReport report, const std::string& outcome) {
  if (report.groups.empty() && report.lost_nodes.empty()) return;
  report.outcome = outcome;
  const auto shared = std::make_shared<const JobReport>(std::move(report));
  effects_.push_back(note::RoundReported{shared});
  for (const auto& [id, m] : membership_.members()) {
    if (InLastRound(m)) effects_.push_back(TellReport{id, shared});
  }
}

void RoundMachine::TellWaitersWithin(Duration delay) {
  if (!notice_end_ || *notice_end_ > now_ + delay) notice_end_ = now_ + delay;
}

void RoundMachine::TellWaiters() {
  notice_end_.reset();
  const int waiting = membership_.count(Phase::kWaiting);
  if (waiting == 0) return;
  const auto what = std::make_shared<const Waiting>(WhatIsWaitedFor(now_));
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kWaiting) effects_.push_back(TellWaiting{id, what});
  }
  if (Is<Gathering>() && !Enough()) notice_end_ = now_ + kReminder;
}

Waiting RoundMachine::WhatIsWaitedFor(TimePoint now) const {
  const int waiting = membership_.count(Phase::kWaiting);
  JobRules needed = policy_;
  needed.min_nodes = MinNodes();
  if (const auto* gathering = std::get_if<Gathering>(&state_)) {
    return WaitsForNodes{needed, waiting, absent_.List(), gathering->since, gathering->last_call_end, now};
  }
  if (const auto* running = std::get_if<Running>(&state_)) {
    if (!running->asked) return WaitsAsSpare{policy_, membership_.in_round(), waiting};
    return WaitsForSnapshot{std::max(Duration::zero(), running->asked->end - now)};
  }
  if (const auto* draining = std::get_if<Draining>(&state_)) {
    return WaitsForDrain{membership_.in_round() + membership_.leaving_waiting(), draining->round.number};
  }
  return WaitsForNothing{};
}

void RoundMachine::DismissNode(const NodeId& id, Dismissal reason, DismissReason why) {
  effects_.push_back(Dismiss{id, reason, std::move(why)});
}

}  // namespace ddprun
