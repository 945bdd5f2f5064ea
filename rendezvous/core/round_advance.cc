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
  if (state_ == State::kDraining) AdvanceDraining();
  if (state_ == State::kGathering) AdvanceGathering();
  if (state_ == State::kRunning) AdvanceRunning();
}

void RoundMachine::AdvanceGathering() {
  const bool had_pause = pause_end_.has_value();
  if (had_pause && now_ >= *pause_end_) pause_end_.reset();
  const int n = membership_.count(Phase::kWaiting);
  if (n < MinNodes()) {
    last_call_end_.reset();
    return;
  }
  if (pause_end_) return;
  if (had_pause) return Seal("the pause after repeated losses of nodes is over");
  if (n >= policy_.max_nodes) return Seal(absl::StrCat("all ", Nodes(policy_.max_nodes), " joined"));
  if (!last_call_end_) {
    last_call_end_ = now_ + (round_ < Round(0) ? policy_.first_last_call : policy_.last_call);
  }
  if (now_ >= *last_call_end_) {
    Seal(absl::StrCat(n, " of at most ", Nodes(policy_.max_nodes), " joined and the last call is over"));
  }
}

void RoundMachine::AdvanceRunning() {
  const int members = membership_.in_round();
  // The last members had succeeded and are gone, or left: what is left may gather anew.
  if (members == 0) {
    Gather();
    return AdvanceGathering();
  }
  if (membership_.count(Phase::kSucceeded) == members) return Close(Dismissal::kSucceeded, "");
  const std::string reason = WhyInterrupt();
  if (!reason.empty()) return Interrupt(reason);
  asked_.reset();
}

std::string RoundMachine::WhyInterrupt() {
  if (!membership_.to_be_drained().empty()) {
    return membership_.Find(*membership_.to_be_drained().begin())->drain_reason;
  }
  const int members = membership_.in_round();
  const int newcomers = membership_.count(Phase::kWaiting) - membership_.excluded_waiting();
  const bool room = UsableNodes(policy_, members + newcomers) > members;
  if (!room || finishing_ || policy_.scale_up == ScaleUp::kNever) {
    last_call_end_.reset();
    return "";
  }
  if (!last_call_end_) last_call_end_ = now_ + policy_.last_call;
  if (members + newcomers < policy_.max_nodes && now_ < *last_call_end_) return "";
  return absl::StrCat(Nodes(newcomers), " joined the running job");
}

void RoundMachine::Interrupt(const std::string& reason) {
  if (asked_) {
    if (now_ < asked_->end) return;
    return Drain(
        absl::StrCat(asked_->reason, "; no snapshot came within ", Seconds(policy_.snapshot_timeout)));
  }
  const bool wanted = policy_.scale_up == ScaleUp::kAtSnapshot || !membership_.to_be_drained().empty();
  // Workers that report no step would not answer.
  if (!wanted || !step_reported_) return Drain(reason);
  asked_ = Asked{reason, now_ + policy_.snapshot_timeout};
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kRunning) effects_.push_back(TakeSnapshot{id, round_, reason});
  }
  NoteIt("snapshot_asked", absl::StrCat("round ", round_.value(), ": ", reason));
  TellWaitersWithin(Duration::zero());
}

void RoundMachine::AdvanceDraining() {
  if (membership_.in_round() > 0) return;
  drain_end_.reset();
  if (closing_) return Close(closing_->outcome, closing_->reason);
  JobReport report = losses_.Report(round_, now_);
  Verdict verdict{Cost::kNothing, absl::StrCat("no restart is spent: ", end_reason_)};
  if (failed_) {
    const Failure& cause = report.groups[0].first;
    if (!cause.consequence) Blame(cause.host);
    last_failure_ = cause.cause;
    verdict = Judge(policy_, cause, restarts_, furthest_, losses_.num_lost_nodes());
    if (verdict.cost == Cost::kRestart) {
      ++restarts_;
      furthest_.Restarted();
    }
  }
  ShareReport(std::move(report), verdict.text);
  if (verdict.cost == Cost::kJob) {
    return Close(Dismissal::kFailed, absl::StrCat(last_failure_, "; ", verdict.text));
  }
  if (std::exchange(unplanned_losses_, 0) > 0) {
    loss_row_.Lost(now_ - sealed_at_, furthest_.step());
    if (loss_row_.count() >= LossRow::kMax) {
      return Close(Dismissal::kFailed,
                   absl::StrCat("nodes were lost in ", loss_row_.count(),
                                " rounds in a row that brought the job no step forward: ", end_reason_));
    }
    if (const Duration pause = loss_row_.pause(); pause > Duration::zero()) {
      pause_end_ = now_ + pause;
      NoteIt("pause",
             absl::StrCat("nodes were lost in ", loss_row_.count(),
                          " rounds in a row without progress: the next one begins in ", Seconds(pause)));
    }
  }
  if (membership_.count(Phase::kWaiting) < MinNodes() || pause_end_) return Gather();
  Seal("all members stopped their workers");
}

void RoundMachine::Seal(const std::string& reason) {
  round_ = Round(round_.value() + 1);
  state_ = State::kRunning;
  sealed_at_ = now_;
  pause_end_.reset();
  failed_ = finishing_ = step_reported_ = false;
  last_call_end_.reset();
  absent_.Sealed();
  std::vector<Seat> seats = PlanRound(policy_, membership_, round_, restarts_);
  electorate_ = static_cast<int>(seats.size());
  NoteIt("round_sealed",
         absl::StrCat("round ", round_.value(), " with ", Nodes(static_cast<int>(seats.size())), ", ",
                      seats[0].assignment.world_size, " workers: ", reason));
  for (Seat& seat : seats) {
    membership_.SetPhase(seat.node, Phase::kRunning);
    membership_.SetPlace(seat.node, round_, seat.assignment.group_rank, seat.assignment.first_rank);
    membership_.SetProgress(seat.node, {});
    effects_.push_back(Assign{std::move(seat.node), std::move(seat.assignment), reason});
  }
  notice_end_.reset();
  if (membership_.count(Phase::kWaiting) > 0) notice_end_ = now_;
}

void RoundMachine::Drain(const std::string& reason) {
  state_ = State::kDraining;
  end_reason_ = reason;
  last_call_end_.reset();
  asked_.reset();
  std::vector<NodeId> in_round;
  // The slowest of them decides: nodes may have different grace periods.
  Duration limit = Duration::zero();
  for (const auto& [id, m] : membership_.members()) {
    if (!InRound(m) || m.phase == Phase::kLost) continue;
    in_round.push_back(id);
    limit = std::max(limit, m.info.stop_timeout);
  }
  drain_end_ = now_ + limit;
  for (const NodeId& id : in_round) {
    membership_.SetPhase(id, Phase::kStopping);
    effects_.push_back(StopWorkers{id, round_, reason});
  }
  NoteIt("round_ended", absl::StrCat("round ", round_.value(), ": ", reason));
}

void RoundMachine::Gather() {
  state_ = State::kGathering;
  gathering_since_ = now_;
  last_call_end_.reset();
  asked_.reset();
  for (const auto& [id, m] : membership_.members()) membership_.SetJoinEnd(id, now_ + policy_.join_timeout);
  notice_end_ = now_;
  NoteIt("waiting_for_nodes", WaitingText(now_));
}

void RoundMachine::Close(Dismissal outcome, std::string reason) {
  if (state_ == State::kDraining) ShareReport(losses_.Report(round_, now_), reason);
  for (const auto& [id, m] : membership_.members()) DismissNode(id, outcome, reason);
  NoteIt("job_closed", outcome == Dismissal::kSucceeded ? "all workers succeeded" : reason);
  membership_ = Membership();
  outcome_ = outcome;
  outcome_reason_ = reason;
  closing_.reset();
  pause_end_.reset();
  state_ = State::kClosed;
  asked_.reset();
  last_call_end_.reset();
  drain_end_.reset();
  notice_end_.reset();
}

// --- What people are told

void RoundMachine::ShareReport(JobReport report, const std::string& outcome) {
  if (std::exchange(losses_, {}).empty()) return;
  report.outcome = outcome;
  NoteIt("round_report", Summary(report));
  const auto shared = std::make_shared<const JobReport>(std::move(report));
  for (const auto& [id, m] : membership_.members()) {
    if (m.round == round_) effects_.push_back(TellReport{id, shared});
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
  if (state_ == State::kGathering && waiting < MinNodes()) notice_end_ = now_ + kReminder;
}

std::string RoundMachine::WaitingText(TimePoint now) const {
  const int waiting = membership_.count(Phase::kWaiting);
  JobRules needed = policy_;
  needed.min_nodes = MinNodes();
  switch (state_) {
    case State::kGathering:
      return GatheringText(needed, waiting, absent_.List(), gathering_since_, last_call_end_, now);
    case State::kRunning:
      if (asked_) {
        return absl::StrCat("the job is asked for a snapshot and goes on with more nodes from there, in ",
                            Seconds(std::max(Duration::zero(), asked_->end - now)), " at the latest");
      }
      return SpareText(policy_, membership_.in_round(), waiting);
    case State::kDraining:
      return absl::StrCat("waiting for ", Nodes(membership_.in_round()), " to stop the workers of round ",
                          round_.value());
    case State::kClosed:
      break;
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
