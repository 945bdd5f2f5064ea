#include "launcher/agent/agent_machine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr Duration kFirstPause = milliseconds(100);
constexpr Duration kLongestPause = seconds(5);
// A node that is cut off again within this time after a rejoin pauses before the next attempt.
constexpr Duration kSettled = seconds(1);

// A node with a notice stops its workers by itself this much before the time that a stop takes, and at most a quarter of the
// notice before its end. The coordinator does so earlier; see RoundMachine.
constexpr Duration kStopBeforeNotice = seconds(5);
// Workers are killed this long before the end of a notice, or a tenth of the notice, if that is shorter.
constexpr Duration kLastBeforeNotice = seconds(2);

Duration Longer(Duration pause) { return std::clamp(pause * 2, kFirstPause, kLongestPause); }

}  // namespace

AgentMachine::AgentMachine(AgentPolicy policy) : policy_(std::move(policy)) { assignment_.round = Round(-1); }

AgentEffects AgentMachine::Step(const AgentEvent& event, TimePoint now) {
  now_ = now;
  effects_.clear();
  if (state_ != State::kFinished) std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(effects_, {});
}

void AgentMachine::On(const RoundStarted& e) {
  if (end_ || lost_) return;  // The Start crossed this node's Leave, or is for its old identity.
  if (state_ == State::kParked) {
    const bool next = e.assignment.round.value() == assignment_.round.value() + 1;
    if (!next && !parked_.empty()) {
      Say(absl::StrCat("the workers of round ", assignment_.round.value(), " have parked, but round ",
                       e.assignment.round.value(), " follows: they are replaced"));
      parked_.clear();
      Sweep();
    }
    if (killing_) {
      held_ = e;
      return;
    }
  } else if (state_ != State::kIdle) {
    On(AgentBroken{absl::InternalError(absl::StrCat("the coordinator started round ",
                                                    e.assignment.round.value(), " while workers of round ",
                                                    assignment_.round.value(), " were not stopped"))});
    return;
  }
  assignment_ = e.assignment;
  failed_ = succeeded_ = stuck_ = no_round_follows_ = kill_now_ = false;
  by_signal_ = false;
  stop_asked_.reset();
  snapshot_step_ = -1;
  wanted_from_.reset();
  unsignaled_.clear();
  swept_.reset();
  state_ = State::kRunning;
  const std::set<LocalRank> keep = std::exchange(parked_, {});
  DDPRUN_CHECK(keep == alive_, "workers of an earlier round are left that are not parked");
  for (int i = 0; i < policy_.nproc; ++i) alive_.insert(LocalRank(i));
  effects_.push_back(StartWorkers{assignment_, keep});
  if (!keep.empty()) effects_.push_back(TellSurvivors{keep, assignment_.round});
}

void AgentMachine::On(const RoundStopped& e) {
  if (held_ && e.round == held_->assignment.round && !end_ && !lost_) {
    // This node has not started any worker of the round, and its survivors miss it.
    assignment_ = held_->assignment;
    held_.reset();
    no_round_follows_ = e.no_round_follows;
    state_ = State::kStopping;
    parked_.clear();
    unsignaled_.clear();
    return KillNow();
  }
  if (e.round != assignment_.round || end_ || lost_) return;
  if (state_ == State::kRunning || failed_) {
    Say(absl::StrCat("stopping the workers of round ", e.round.value(), ": ", e.reason));
  }
  succeeded_ = succeeded_ && state_ == State::kIdle;  // In Stopping: Ready follows instead of Succeeded.
  if (state_ == State::kRunning) {
    no_round_follows_ = e.no_round_follows;
    Stop(SIGTERM);
    std::set<LocalRank> others = alive_;
    for (const LocalRank rank : e.hung) others.erase(rank);
    if (others != alive_) effects_.push_back(SignalWorkers{SIGKILL, std::move(others)});
  } else if (state_ == State::kStopping && e.no_round_follows) {
    no_round_follows_ = true;
    EndSurvival(SIGTERM);
  } else if (state_ == State::kIdle && std::exchange(succeeded_, false)) {
    effects_.push_back(SendReady{e.round});  // The workers have exited, but only Succeeded was sent.
  }
}

void AgentMachine::On(const Dismissed& e) {
  if (e.reason == Dismissal::kEvicted && !end_) {
    if (state_ == State::kSeeking) return SeekAgain(e.message);
    return CutOff({e.message, EndReason::kEvicted}, /*at_once=*/true);
  }
  if (e.reason == Dismissal::kMoved && !end_) {
    if (state_ == State::kSeeking) return SeekAgain(e.message);
    return CutOff({e.message, EndReason::kCoordinatorLost}, /*at_once=*/false);
  }
  const bool succeeded = e.reason == Dismissal::kSucceeded;
  if (!succeeded) Say(e.message);
  FinishWith(EndReasonOf(e.reason), SIGTERM, succeeded ? "" : e.message);
}

void AgentMachine::On(const CoordinatorLost& e) {
  if (end_) return;  // Expected after Dismiss or Leave.
  if (state_ == State::kSeeking) return SeekAgain(e.reason);
  CutOff(
      {absl::StrCat("the connection to the coordinator broke (", e.reason, ")"), EndReason::kCoordinatorLost},
      /*at_once=*/false);
}

void AgentMachine::On(const Fenced& e) {
  if (state_ != State::kRunning && state_ != State::kStopping && state_ != State::kParked) return;
  const std::string why = e.by_lead
                              ? "the register of the job has not confirmed the lead of the coordinator"
                              : absl::StrCat("the coordinator has not answered for nearly the lease of ",
                                             ToMillis(policy_.lease), " ms");
  CutOff(
      {absl::StrCat(why, ", so the other nodes may continue without this node"), EndReason::kCoordinatorLost},
      /*at_once=*/true);
}

void AgentMachine::On(const Welcomed&) {
  joined_ = true;
  if (notice_ && !end_) TellOfNotice();
  if (state_ != State::kSeeking) return;
  Say("this node has rejoined the job as a new node");
  state_ = State::kIdle;
  lost_.reset();
  rejoined_at_ = now_;
}

void AgentMachine::On(const RejoinFailed& e) {
  if (state_ != State::kSeeking) return;
  const std::string why = absl::StrCat(
      "the coordinator is lost. Start the job again on all nodes; it resumes from its last snapshot (",
      lost_->why, "; ", e.reason, ")");
  Say(why);
  FinishWith(lost_->otherwise, SIGTERM, why);
}

void AgentMachine::On(const WorkerEnded& e) {
  if (alive_.erase(e.local_rank) == 0) return;
  asking_.erase(e.local_rank);
  parked_.erase(e.local_rank);
  unsignaled_.erase(e.local_rank);
  stuck_ = stuck_ || std::holds_alternative<Stuck>(e.exit);
  const std::optional<int> signo = SignalBehind(e.exit);
  const bool by_signal = AskedToStop() && signo && policy_.notice_signals.count(*signo) > 0;
  by_signal_ = by_signal_ || by_signal;
  if (state_ == State::kRunning && !Succeeded(e.exit) && !by_signal) {
    failed_ = true;
    effects_.push_back(SendWorkersFailed{assignment_.round, e.local_rank});
    return Stop(SIGTERM);
  }
  if (state_ == State::kRunning && alive_.empty()) {
    succeeded_ = true;
    state_ = State::kStopping;
  }
  if (state_ == State::kParked) {
    Say(absl::StrCat("local rank ", e.local_rank.value(), ", which had parked, ended: ", ToString(e.exit)));
    return Sweep();
  }
  if (state_ == State::kStopping) Settle();
}

void AgentMachine::On(const WorkerSurvives& e) {
  if (alive_.count(e.local_rank) == 0) return;
  if (e.asks) {
    if (state_ != State::kRunning || !MaySurvive() || !asking_.insert(e.local_rank).second) return;
    effects_.push_back(TellSurvivors{{e.local_rank}, assignment_.round});
    return;
  }
  if (asking_.erase(e.local_rank) == 0) return;
  parked_.erase(e.local_rank);
  if (state_ == State::kParked) {
    Say(absl::StrCat("lost the connection to local rank ", e.local_rank.value(),
                     ", which had parked: it is replaced"));
    return Sweep();
  }
  if (state_ != State::kStopping || unsignaled_.erase(e.local_rank) == 0) return;
  if (!grace_end_) StartGrace();
  std::set<LocalRank> others = alive_;
  others.erase(e.local_rank);
  effects_.push_back(SignalWorkers{SIGTERM, std::move(others)});
}

void AgentMachine::On(const WorkerParked& e) {
  if (e.round != assignment_.round || asking_.count(e.local_rank) == 0) return;
  if (state_ == State::kRunning) {
    parked_.insert(e.local_rank);
    failed_ = !AskedToStop();
    effects_.push_back(SendWorkersFailed{assignment_.round, e.local_rank, e.why});
    return Stop(SIGTERM);
  }
  if (state_ != State::kStopping) return;
  parked_.insert(e.local_rank);
  Settle();
}

void AgentMachine::On(const SnapshotWanted& e) {
  // It also bounds the grace period of a node that is cut off or ending.
  if (e.left) TakeNotice(*e.left, e.reason);
  if (!InRound(e.round) || (e.left && !e.stop_within)) return;
  wanted_from_ = e.from_step;
  if (!e.stop_within) {
    Say(absl::StrCat("asking the workers of round ", e.round.value(), " for a snapshot: ", e.reason));
    effects_.push_back(AskForSnapshot{e.round});
    return;
  }
  const TimePoint stop_at = now_ + *e.stop_within;
  if (stop_asked_ && *stop_asked_ <= stop_at) return;
  if (!stop_asked_) {
    Say(absl::StrCat("asking the workers of round ", e.round.value(), " to stop after a snapshot, within ",
                     InSeconds(*e.stop_within), ": ", e.reason));
  }
  stop_asked_ = stop_at;
  effects_.push_back(AskForSnapshot{e.round, WorkerStop{stop_at, e.reason}});
}

void AgentMachine::On(const SnapshotReported& e) {
  // The report of a worker that exits after its snapshot may arrive after its end.
  const bool exited =
      state_ == State::kStopping && succeeded_ && e.round == assignment_.round && !end_ && !lost_;
  if ((!InRound(e.round) && !exited) || e.step <= snapshot_step_) return;
  snapshot_step_ = e.step;
  if (!wanted_from_ || e.step < *wanted_from_) return;
  wanted_from_.reset();
  effects_.push_back(SendSnapshotTaken{e.round, e.step});
}

void AgentMachine::On(const WorkersGone& e) {
  const std::set<LocalRank> spared = swept_.value_or(std::set<LocalRank>());
  killing_ = false;
  for (std::set<LocalRank>* set : {&alive_, &asking_, &parked_, &unsignaled_}) {
    std::erase_if(*set, [&](LocalRank rank) { return spared.count(rank) == 0; });
  }
  // A stuck worker was already reported; that failure ends the job.
  if (!e.unkillable.empty() && !stuck_ && !end_) {
    end_ = EndReason::kBroken;
    end_why_ =
        leaving_.emplace(absl::StrCat(e.unkillable[0],
                                      ": SIGKILL has no effect, so this node cannot join further rounds; "
                                      "find out what the process waits for, or restart the machine"));
    Say(end_why_);
    state_ = State::kStopping;
    if (!alive_.empty()) {
      effects_.push_back(SendLeave{*leaving_});
      EndSurvival(SIGTERM);
    }
  }
  if (state_ != State::kParked) return Settle();
  if (Spared() != spared) return Sweep();
  if (alive_.empty()) state_ = State::kIdle;
  if (!held_) return;
  const RoundStarted start = *std::exchange(held_, std::nullopt);
  On(start);
}

void AgentMachine::Stopped() {
  kill_now_ = false;
  grace_end_.reset();
  if (failed_) effects_.push_back(ReportFailures{assignment_.round});
  failed_ = false;
  if (leaving_) effects_.push_back(SendLeave{*leaving_, /*workers_gone=*/true});
  if (end_) return Finished();
  if (lost_) return Seek();
  state_ = alive_.empty() ? State::kIdle : State::kParked;
  if (succeeded_) {
    effects_.push_back(SendWorkersSucceeded{assignment_.round, by_signal_});
  } else {
    effects_.push_back(SendReady{assignment_.round});
  }
}

void AgentMachine::On(const SignalReceived& e) {
  const std::string name = SignalName(e.signo);
  if (signaled_) {
    Say(absl::StrCat("received ", name, " again: killing the workers"));
    if (state_ == State::kRunning) state_ = State::kStopping;
    if (state_ == State::kStopping) KillNow();
    return;
  }
  signaled_ = true;
  // The line begins with torchrun's message, which scripts may match.
  Say(absl::StrCat("Received ", e.signo, " death signal, shutting down workers: ", name,
                   " is sent to them; SIGKILL follows in ", policy_.grace / seconds(1), " s or on a second ",
                   name));
  Leave(absl::StrCat("its agent received ", name));
  // Workers that have been signalled already get this signal as well, because a program may handle only one of them.
  if (state_ == State::kStopping && !killing_ && unsignaled_ != alive_) {
    effects_.push_back(SignalWorkers{e.signo, unsignaled_});
  }
  FinishWith(ReasonOfSignal(e.signo), e.signo, absl::StrCat("received ", name));
}

void AgentMachine::On(const NoticeReceived& e) {
  if (!TakeNotice(e.left, e.reason)) {
    Say(absl::StrCat(e.reason, ": an earlier notice of pre-emption ends before"));
    return;
  }
  Say(absl::StrCat(e.reason, ": this node goes away in ", InSeconds(e.left),
                   end_ ? "" : "; the workers of the job are asked for a snapshot"));
  if (end_) return;
  if (lost_ || state_ == State::kSeeking) return FinishWith(EndReason::kPreempted, SIGTERM, e.reason);
  if (joined_) TellOfNotice();
}

bool AgentMachine::TakeNotice(Duration left, const std::string& reason) {
  const TimePoint end = now_ + left;
  if (notice_ && notice_->end <= end) return false;
  notice_ = {.stop_at = end - std::min(policy_.grace + kStopBeforeNotice, left / 4),
             .last = end - std::min(kLastBeforeNotice, left / 10),
             .end = end,
             .reason = notice_ ? notice_->reason : reason};
  if (grace_end_) grace_end_ = std::min(*grace_end_, notice_->last);
  return true;
}

void AgentMachine::TellOfNotice() {
  effects_.push_back(SendPreempted{std::max(notice_->end - now_, Duration::zero()), notice_->reason});
}

std::optional<TimePoint> AgentMachine::NoticeAlarm() const {
  if (!notice_ || end_ || lost_ || state_ == State::kStopping) return std::nullopt;
  return state_ == State::kIdle ? notice_->last : notice_->stop_at;
}

std::optional<TimePoint> AgentMachine::NextDeadline() const {
  if (const std::optional<TimePoint> alarm = NoticeAlarm())
    return alarm;  // no grace period runs in these states
  return state_ == State::kSeeking ? seek_at_ : grace_end_;
}

void AgentMachine::StartGrace() {
  grace_start_ = now_;
  grace_end_ = now_ + policy_.grace;
  if (notice_) grace_end_ = std::clamp(notice_->last, now_, *grace_end_);
}

void AgentMachine::On(const AgentBroken& e) {
  Say(std::string(e.status.message()));
  Leave(std::string(e.status.message()));
  FinishWith(e.reason, SIGTERM, std::string(e.status.message()));
}

void AgentMachine::On(const AgentTick&) {
  if (const std::optional<TimePoint> alarm = NoticeAlarm()) {
    if (now_ < *alarm) return;
    const std::string why = absl::StrCat("the notice of pre-emption ends in ", InSeconds(notice_->end - now_),
                                         ", and the coordinator has not dismissed this node");
    Say(why);
    Leave(why);
    FinishWith(EndReason::kPreempted, SIGTERM, notice_->reason);
  } else if (state_ == State::kSeeking) {
    if (!seek_at_ || now_ < *seek_at_) return;
    seek_at_.reset();
    effects_.push_back(Rejoin{seek_end_ - now_});
  } else if (grace_end_ && now_ >= *grace_end_) {
    const bool some_park = !asking_.empty() && MaySurvive();
    Say(absl::StrCat(Counted(static_cast<int64_t>(alive_.size() - Spared().size()), "worker"), " did not ",
                     some_park ? "exit or park" : "exit", " within ", InSeconds(*grace_end_ - grace_start_),
                     notice_ ? ", before the end of the notice" : "", ": sending SIGKILL"));
    KillNow();
  }
}

void AgentMachine::Stop(int signo) {
  state_ = State::kStopping;
  StartGrace();
  if (MaySurvive()) unsignaled_ = asking_;
  if (!asking_.empty()) {
    effects_.push_back(TellSurvivors{asking_, assignment_.round, /*round_over=*/true, !MaySurvive()});
  }
  if (unsignaled_ != alive_) effects_.push_back(SignalWorkers{signo, unsignaled_});
  Settle();
}

void AgentMachine::EndSurvival(int signo) {
  const std::set<LocalRank> signaled = std::exchange(unsignaled_, {});
  held_.reset();
  state_ = State::kStopping;
  if (signaled.empty()) return Settle();
  StartGrace();
  kill_now_ = false;
  effects_.push_back(
      TellSurvivors{signaled, assignment_.round, /*round_over=*/true, /*no_round_follows=*/true});
  std::set<LocalRank> others;
  std::set_difference(alive_.begin(), alive_.end(), signaled.begin(), signaled.end(),
                      std::inserter(others, others.end()));
  effects_.push_back(SignalWorkers{signo, std::move(others)});
}

void AgentMachine::Settle() {
  if (killing_) return;
  const std::set<LocalRank> spared = Spared();
  // If nothing has ended, nothing is left behind.
  const bool all_parked = static_cast<int>(spared.size()) == policy_.nproc;
  if (alive_ == spared && (all_parked || swept_ == spared)) return Stopped();
  if (alive_ == spared || kill_now_) Sweep();
}

void AgentMachine::Sweep() {
  if (killing_) return;
  killing_ = true;
  grace_end_.reset();
  swept_ = Spared();
  effects_.push_back(KillWorkers{*swept_});
}

void AgentMachine::KillNow() {
  grace_end_.reset();
  kill_now_ = true;
  if (!MaySurvive()) unsignaled_.clear();
  Settle();
}

void AgentMachine::CutOff(Lost lost, bool at_once) {
  if (!end_ && !lost_) {
    const bool idle = state_ == State::kIdle;
    Say(absl::StrCat(lost.why, ": this node ", idle ? "" : "stops its workers and ", "joins again"));
    lost_ = std::move(lost);
    if (idle) return Seek();
    if (!at_once) {
      if (state_ == State::kRunning) return Stop(SIGTERM);
      return EndSurvival(SIGTERM);
    }
  }
  if (!at_once) return;
  state_ = State::kStopping;
  held_.reset();
  KillNow();
}

void AgentMachine::Seek() {
  if (notice_) return FinishWith(EndReason::kPreempted, SIGTERM, notice_->reason);
  state_ = State::kSeeking;
  joined_ = false;
  const bool settled = !rejoined_at_ || now_ - *rejoined_at_ >= kSettled;
  pause_ = settled ? Duration::zero() : Longer(pause_);
  seek_end_ = now_ + pause_ + policy_.seek_limit;
  if (settled) {
    seek_at_.reset();
    effects_.push_back(Rejoin{seek_end_ - now_});
  } else {
    seek_at_ = now_ + pause_;
  }
}

void AgentMachine::SeekAgain(const std::string& why) {
  pause_ = Longer(pause_);
  if (now_ + pause_ >= seek_end_) return On(RejoinFailed{why});
  seek_at_ = now_ + pause_;
}

void AgentMachine::FinishWith(EndReason reason, int signo, std::string why) {
  if (!end_) {
    end_ = reason;
    end_why_ = std::move(why);
  }
  if (state_ == State::kIdle || state_ == State::kSeeking) {
    Finished();
  } else if (state_ == State::kRunning) {
    Stop(signo);
  } else {
    EndSurvival(signo);
  }
}

void AgentMachine::Leave(std::string reason) {
  const bool workers_gone = state_ == State::kIdle || state_ == State::kSeeking;
  if (!workers_gone) leaving_ = reason;
  effects_.push_back(SendLeave{std::move(reason), workers_gone});
}

void AgentMachine::Finished() {
  state_ = State::kFinished;
  effects_.push_back(Finish{*end_, ExitCodeOf(*end_, policy_.exit_codes), end_why_});
}

void AgentMachine::Say(std::string text) { effects_.push_back(Tell{std::move(text)}); }

}  // namespace ddprun
