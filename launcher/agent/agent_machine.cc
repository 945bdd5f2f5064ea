#include "launcher/agent/agent_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

// The search for the coordinator lasts this much longer than a lease.
constexpr Duration kSeekBeyondLease = seconds(1);
constexpr Duration kFirstPause = milliseconds(100);
constexpr Duration kLongestPause = seconds(5);
// A node that is cut off again within this time after a rejoin pauses before the next attempt.
constexpr Duration kSettled = seconds(1);

Duration Longer(Duration pause) { return std::clamp(pause * 2, kFirstPause, kLongestPause); }

}  // namespace

EndReason EndReasonOf(Dismissal dismissal) {
  switch (dismissal) {
    case Dismissal::kSucceeded:
      return EndReason::kSucceeded;
    case Dismissal::kFailed:
      return EndReason::kJobFailed;
    case Dismissal::kJoinTimeout:
      return EndReason::kJoinTimeout;
    case Dismissal::kEvicted:
      return EndReason::kEvicted;
    case Dismissal::kRejected:
      return EndReason::kRejected;
    case Dismissal::kStopped:
      return EndReason::kStopped;
    case Dismissal::kDrained:
      return EndReason::kDrained;
    case Dismissal::kCoordinatorEnded:
      return EndReason::kCoordinatorEnded;
  }
  return EndReason::kBroken;
}

AgentMachine::AgentMachine(AgentPolicy policy) : policy_(std::move(policy)) { assignment_.round = Round(-1); }

AgentEffects AgentMachine::Step(const AgentEvent& event, TimePoint now) {
  now_ = now;
  effects_.clear();
  if (state_ != State::kFinished) std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(effects_, {});
}

void AgentMachine::On(const RoundStarted& e) {
  if (end_ || lost_) return;  // The Start crossed this node's Leave, or is for its old identity.
  if (state_ != State::kIdle) {
    On(AgentBroken{absl::InternalError(absl::StrCat("the coordinator started round ",
                                                    e.assignment.round.value(), " while workers of round ",
                                                    assignment_.round.value(), " were not stopped"))});
    return;
  }
  assignment_ = e.assignment;
  failed_ = succeeded_ = stuck_ = false;
  snapshot_step_ = -1;
  wanted_from_.reset();
  state_ = State::kRunning;
  for (int i = 0; i < policy_.nproc; ++i) alive_.insert(LocalRank(i));
  effects_.push_back(StartWorkers{assignment_});
}

void AgentMachine::On(const RoundStopped& e) {
  if (e.round != assignment_.round || end_ || lost_) return;
  if (state_ == State::kRunning || failed_) {
    Say(absl::StrCat("stopping the workers of round ", e.round.value(), ": ", e.reason));
  }
  if (state_ == State::kRunning) {
    Stop(SIGTERM);
  } else if (state_ == State::kIdle && succeeded_) {
    effects_.push_back(SendReady{e.round});  // The workers have exited, but only Succeeded was sent.
  }
  succeeded_ = false;  // In Stopping: Ready follows instead of Succeeded.
}

void AgentMachine::On(const Dismissed& e) {
  if (e.reason == Dismissal::kEvicted && !end_) {
    if (state_ == State::kSeeking) return SeekAgain(e.message);
    return CutOff({e.message, EndReason::kEvicted}, /*at_once=*/true);
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

void AgentMachine::On(const Fenced&) {
  if (state_ != State::kRunning && state_ != State::kStopping) return;
  CutOff({absl::StrCat("the coordinator has not answered for nearly the lease of ", ToMillis(policy_.lease),
                       " ms, so the other nodes may continue without this node"),
          EndReason::kCoordinatorLost},
         /*at_once=*/true);
}

void AgentMachine::On(const Rejoined&) {
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
  stuck_ = stuck_ || std::holds_alternative<Stuck>(e.exit);
  if (state_ == State::kRunning && !Succeeded(e.exit)) {
    failed_ = true;
    effects_.push_back(SendWorkersFailed{assignment_.round, e.local_rank});
    Stop(SIGTERM);
    return;
  }
  if (!alive_.empty()) return;
  if (state_ == State::kRunning) {
    succeeded_ = true;
    state_ = State::kStopping;
  }
  Sweep();
}

void AgentMachine::On(const SnapshotWanted& e) {
  if (!InRound(e.round)) return;
  Say(absl::StrCat("asking the workers of round ", e.round.value(), " for a snapshot: ", e.reason));
  wanted_from_ = e.from_step;
  effects_.push_back(AskForSnapshot{e.round});
}

void AgentMachine::On(const SnapshotReported& e) {
  if (!InRound(e.round) || e.step <= snapshot_step_) return;
  snapshot_step_ = e.step;
  if (!wanted_from_ || e.step < *wanted_from_) return;
  wanted_from_.reset();
  effects_.push_back(SendSnapshotTaken{e.round, e.step});
}

void AgentMachine::On(const WorkersGone& e) {
  killing_ = false;
  grace_end_.reset();
  alive_.clear();
  if (failed_) effects_.push_back(ReportFailures{assignment_.round});
  failed_ = false;
  // A stuck worker was already reported; that failure ends the job.
  if (!e.unkillable.empty() && !stuck_ && !end_) {
    end_ = EndReason::kBroken;
    end_why_ =
        leaving_.emplace(absl::StrCat(e.unkillable[0],
                                      ": SIGKILL has no effect, so this node cannot join further rounds; "
                                      "find out what the process waits for, or restart the machine"));
    Say(end_why_);
  }
  if (leaving_) effects_.push_back(SendLeave{*leaving_, /*workers_gone=*/true});
  if (end_) return Finished();
  if (lost_) return Seek();
  state_ = State::kIdle;
  if (succeeded_) {
    effects_.push_back(SendWorkersSucceeded{assignment_.round});
  } else {
    effects_.push_back(SendReady{assignment_.round});
  }
}

void AgentMachine::On(const SignalReceived& e) {
  const std::string name = SignalName(e.signo);
  if (signaled_) {
    Say(absl::StrCat("received ", name, " again: killing the workers"));
    if (state_ == State::kRunning) state_ = State::kStopping;
    Sweep();
    return;
  }
  signaled_ = true;
  // The line begins with torchrun's message, which scripts may match.
  Say(absl::StrCat("Received ", e.signo, " death signal, shutting down workers: ", name,
                   " is sent to them; SIGKILL follows in ", policy_.grace / seconds(1), " s or on a second ",
                   name));
  Leave(absl::StrCat("its agent received ", name));
  const bool was_stopping = state_ == State::kStopping;
  FinishWith(ReasonOfSignal(e.signo), e.signo, absl::StrCat("received ", name));
  if (was_stopping && !killing_) effects_.push_back(SignalWorkers{e.signo});
}

void AgentMachine::On(const AgentBroken& e) {
  Say(std::string(e.status.message()));
  Leave(std::string(e.status.message()));
  FinishWith(e.reason, SIGTERM, std::string(e.status.message()));
}

void AgentMachine::On(const AgentTick&) {
  if (state_ == State::kSeeking) {
    if (!seek_at_ || now_ < *seek_at_) return;
    seek_at_.reset();
    effects_.push_back(Rejoin{seek_end_ - now_});
  } else if (grace_end_ && now_ >= *grace_end_) {
    Say(absl::StrCat(Counted(static_cast<int64_t>(alive_.size()), "worker"), " did not exit within ",
                     policy_.grace / seconds(1), " s: sending SIGKILL"));
    Sweep();
  }
}

void AgentMachine::Stop(int signo) {
  state_ = State::kStopping;
  if (alive_.empty()) return Sweep();
  grace_end_ = now_ + policy_.grace;
  effects_.push_back(SignalWorkers{signo});
}

void AgentMachine::Sweep() {
  grace_end_.reset();
  if (killing_) return;
  killing_ = true;
  effects_.push_back(KillWorkers{});
}

void AgentMachine::CutOff(Lost lost, bool at_once) {
  if (!end_ && !lost_) {
    const bool idle = state_ == State::kIdle;
    Say(absl::StrCat(lost.why, ": this node ", idle ? "" : "stops its workers and ", "joins again"));
    lost_ = std::move(lost);
    if (idle) return Seek();
    if (!at_once) {
      if (state_ == State::kRunning) Stop(SIGTERM);
      return;
    }
  }
  if (!at_once) return;
  state_ = State::kStopping;
  Sweep();
}

void AgentMachine::Seek() {
  state_ = State::kSeeking;
  const bool settled = !rejoined_at_ || now_ - *rejoined_at_ >= kSettled;
  pause_ = settled ? Duration::zero() : Longer(pause_);
  seek_end_ = now_ + pause_ + policy_.lease + kSeekBeyondLease;
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
