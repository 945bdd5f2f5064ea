// RoundMachine's moves from state to state, and what people are told of them.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/round_machine.h"
#include "rendezvous/core/round_plan.h"
#include "rendezvous/core/waiting_text.h"

namespace ddprun {
namespace {

// How often nodes that are too few are told for whom they wait.
constexpr Duration kReminder = seconds(10);

}  // namespace

// --- What follows

void RoundMachine::Advance() {
  if (const auto* s = std::get_if<Draining>(&state_)) AdvanceDraining(*s);
  if (auto* s = std::get_if<Gathering>(&state_)) AdvanceGathering(*s);
  if (auto* s = std::get_if<Running>(&state_)) AdvanceRunning(*s);
}

void RoundMachine::AdvanceGathering(Gathering& s) {
  const bool had_pause = s.pause_end.has_value();
  if (had_pause && now_ >= *s.pause_end) s.pause_end.reset();
  if (!Enough()) {
    s.last_call_end.reset();
    return;
  }
  if (s.pause_end) return;
  const int n = membership_.count(Phase::kWaiting);
  if (had_pause) return Seal("the pause after repeated losses of nodes is over");
  if (n >= policy_.max_nodes) return Seal(absl::StrCat("all ", Nodes(policy_.max_nodes), " joined"));
  if (!s.last_call_end) s.last_call_end = now_ + (last_round_ ? policy_.last_call : policy_.first_last_call);
  if (now_ >= *s.last_call_end) {
    Seal(absl::StrCat(n, " of at most ", Nodes(policy_.max_nodes), " joined and the last call is over"));
  }
}

void RoundMachine::AdvanceRunning(Running& s) {
  const int members = membership_.in_round();
  // The last members had succeeded and are gone, or left: what is left may gather anew.
  if (members == 0) {
    Gather(std::nullopt);
    return AdvanceGathering(In<Gathering>());
  }
  if (membership_.count(Phase::kSucceeded) == members) return Close(Dismissal::kSucceeded, "");
  if (!LetsIn(s)) {
    s.last_call_end.reset();
  } else if (!s.last_call_end) {
    s.last_call_end = now_ + policy_.last_call;
  }
  const std::string reason = WhyInterrupt(s);
  if (!reason.empty()) return Interrupt(s, reason);
  s.asked.reset();
}

bool RoundMachine::LetsIn(const Running& s) const {
  const int members = membership_.in_round();
  const bool room = UsableNodes(policy_, members + Newcomers()) > members;
  return room && !s.round.finishing && policy_.scale_up != ScaleUp::kNever;
}

std::string RoundMachine::WhyInterrupt(const Running& s) const {
  if (!membership_.to_be_drained().empty()) {
    return membership_.Find(*membership_.to_be_drained().begin())->drain_reason;
  }
  if (!s.last_call_end) return "";
  const int newcomers = Newcomers();
  if (membership_.in_round() + newcomers < policy_.max_nodes && now_ < *s.last_call_end) return "";
  return absl::StrCat(Nodes(newcomers), " joined the running job");
}

void RoundMachine::Interrupt(Running& s, const std::string& reason) {
  if (s.asked) {
    if (now_ < s.asked->end) return;
    return Drain(
        absl::StrCat(s.asked->reason, "; no snapshot came within ", Seconds(policy_.snapshot_timeout)));
  }
  const bool wanted = policy_.scale_up == ScaleUp::kAtSnapshot || !membership_.to_be_drained().empty();
  // Workers that report no step would not answer.
  if (!wanted || !s.round.step_reported) return Drain(reason);
  s.asked = SnapshotAsked{reason, now_ + policy_.snapshot_timeout};
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kRunning) effects_.push_back(TakeSnapshot{id, s.round.number, reason});
  }
  NoteIt("snapshot_asked", absl::StrCat("round ", s.round.number.value(), ": ", reason));
  TellWaitersWithin(Duration::zero());
}

void RoundMachine::AdvanceDraining(const Draining& s) {
  if (membership_.in_round() > 0) return;
  if (s.closing) {
    const CloseRequested request = *s.closing;
    ShareReport(s.round, request.reason);
    return Close(request.outcome, request.reason);
  }
  JobReport report = s.round.losses.Report(s.round.number);
  Verdict verdict{Cost::kNothing, absl::StrCat("no restart is spent: ", s.end_reason)};
  if (s.round.failed) {
    const Failure& cause = report.groups[0].first;
    if (cause.origin == FailureOrigin::kOwn) Blame(cause.host);
    last_failure_ = cause.cause;
    verdict = Judge(policy_, cause, restarts_, furthest_, s.round.losses.num_lost_nodes());
    if (verdict.cost == Cost::kRestart) {
      ++restarts_;
      furthest_.Restarted();
    }
  }
  ShareReport(std::move(report), verdict.text);
  if (verdict.cost == Cost::kJob) {
    return Close(Dismissal::kFailed, absl::StrCat(last_failure_, "; ", verdict.text));
  }
  std::optional<TimePoint> pause_end;
  if (s.round.unplanned_losses > 0) {
    loss_row_.Lost(now_ - s.round.sealed_at, furthest_.step());
    if (loss_row_.count() >= LossRow::kMax) {
      return Close(Dismissal::kFailed,
                   absl::StrCat("nodes were lost in ", loss_row_.count(),
                                " rounds in a row that brought the job no step forward: ", s.end_reason));
    }
    if (const Duration pause = loss_row_.pause(); pause > Duration::zero()) {
      pause_end = now_ + pause;
      NoteIt("pause",
             absl::StrCat("nodes were lost in ", loss_row_.count(),
                          " rounds in a row without progress: the next one begins in ", Seconds(pause)));
    }
  }
  if (!Enough() || pause_end) return Gather(pause_end);
  Seal("all members stopped their workers");
}

void RoundMachine::Seal(const std::string& reason) {
  DDPRUN_CHECK(Is<Gathering>() || Is<Draining>(), StateForCheck());
  const Round round(last_round_ ? last_round_->value() + 1 : 0);
  last_round_ = round;
  state_ = Running{.round = {.number = round, .sealed_at = now_}};
  absent_.Sealed();
  std::vector<Seat> seats = PlanRound(policy_, membership_, round, restarts_);
  electorate_ = static_cast<int>(seats.size());
  NoteIt("round_sealed",
         absl::StrCat("round ", round.value(), " with ", Nodes(static_cast<int>(seats.size())), ", ",
                      seats[0].assignment.world_size, " workers: ", reason));
  for (Seat& seat : seats) {
    membership_.SetPhase(seat.node, Phase::kRunning);
    membership_.SetPlace(seat.node, round, seat.assignment.group_rank, seat.assignment.first_rank);
    membership_.SetProgress(seat.node, {});
    effects_.push_back(Assign{std::move(seat.node), std::move(seat.assignment), reason});
  }
  notice_end_.reset();
  if (membership_.count(Phase::kWaiting) > 0) notice_end_ = now_;
}

void RoundMachine::Drain(std::string reason) {
  Running& ending = In<Running>();
  std::vector<NodeId> in_round;
  // The slowest of them decides: nodes may have different grace periods.
  Duration limit = Duration::zero();
  for (const auto& [id, m] : membership_.members()) {
    if (!InRound(m) || m.phase == Phase::kLost) continue;
    in_round.push_back(id);
    limit = std::max(limit, m.info.stop_timeout);
  }
  const Round round = ending.round.number;
  for (const NodeId& id : in_round) {
    membership_.SetPhase(id, Phase::kStopping);
    effects_.push_back(StopWorkers{id, round, reason});
  }
  NoteIt("round_ended", absl::StrCat("round ", round.value(), ": ", reason));
  state_ = Draining{.round = std::move(ending.round), .end_reason = std::move(reason), .end = now_ + limit};
}

void RoundMachine::Gather(std::optional<TimePoint> pause_end) {
  state_ = Gathering{.since = now_, .pause_end = pause_end};
  for (const auto& [id, m] : membership_.members()) membership_.SetJoinEnd(id, now_ + policy_.join_timeout);
  notice_end_ = now_;
  NoteIt("waiting_for_nodes", WaitingText(now_));
}

void RoundMachine::Close(Dismissal outcome, std::string reason) {
  for (const auto& [id, m] : membership_.members()) DismissNode(id, outcome, reason);
  NoteIt("job_closed", outcome == Dismissal::kSucceeded ? "all workers succeeded" : reason);
  membership_ = Membership();
  notice_end_.reset();
  state_ = Closed{outcome, std::move(reason)};
}

// --- What people are told

void RoundMachine::ShareReport(const ActiveRound& round, const std::string& outcome) {
  ShareReport(round.losses.Report(round.number), outcome);
}

void RoundMachine::ShareReport(JobReport report, const std::string& outcome) {
  if (report.groups.empty() && report.lost_nodes.empty()) return;
  report.outcome = outcome;
  NoteIt("round_report", Summary(report));
  const auto shared = std::make_shared<const JobReport>(std::move(report));
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
  const std::string text = WaitingText(now_);
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kWaiting) effects_.push_back(TellWaiting{id, text});
  }
  if (Is<Gathering>() && !Enough()) notice_end_ = now_ + kReminder;
}

std::string RoundMachine::WaitingText(TimePoint now) const {
  const int waiting = membership_.count(Phase::kWaiting);
  JobRules needed = policy_;
  needed.min_nodes = MinNodes();
  if (const auto* gathering = std::get_if<Gathering>(&state_)) {
    return GatheringText(needed, waiting, absent_.List(), gathering->since, gathering->last_call_end, now);
  }
  if (const auto* running = std::get_if<Running>(&state_)) {
    if (!running->asked) return SpareText(policy_, membership_.in_round(), waiting);
    return absl::StrCat("the job is asked for a snapshot and goes on with more nodes from there, in ",
                        Seconds(std::max(Duration::zero(), running->asked->end - now)), " at the latest");
  }
  if (const auto* draining = std::get_if<Draining>(&state_)) {
    return absl::StrCat("waiting for ", Nodes(membership_.in_round()), " to stop the workers of round ",
                        draining->round.number.value());
  }
  return "the job is closed";
}

void RoundMachine::DismissNode(const NodeId& id, Dismissal reason, std::string message) {
  effects_.push_back(Dismiss{id, reason, std::move(message)});
}

void RoundMachine::NoteIt(absl::string_view event, std::string reason) {
  effects_.push_back(Note{std::string(event), std::move(reason)});
}

}  // namespace ddprun
