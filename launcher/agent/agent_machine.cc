#include "launcher/agent/agent_machine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

AgentMachine::AgentMachine(AgentPolicy policy) : policy_(std::move(policy)) { assignment_.round = Round(-1); }

AgentEffects AgentMachine::Step(const AgentEvent& event, TimePoint now) {
  now_ = now;
  effects_.clear();
  if (state_ != State::kFinished) std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(effects_, {});
}

void AgentMachine::On(const RoundStarted& e) {
  if (exit_code_) return;  // It crossed our goodbye.
  if (state_ != State::kIdle) {
    On(AgentBroken{absl::InternalError(absl::StrCat("the coordinator started round ",
                                                    e.assignment.round.value(), " while workers of round ",
                                                    assignment_.round.value(), " were not gone"))});
    return;
  }
  assignment_ = e.assignment;
  failed_ = succeeded_ = false;
  state_ = State::kRunning;
  for (int i = 0; i < policy_.nproc; ++i) alive_.insert(LocalRank(i));
  effects_.push_back(StartWorkers{assignment_});
}

void AgentMachine::On(const RoundStopped& e) {
  if (e.round != assignment_.round || exit_code_) return;
  if (state_ == State::kRunning) {
    Say(absl::StrCat("stopping the workers of round ", e.round.value(), ": ", e.reason));
    Stop(SIGTERM);
  } else if (state_ == State::kIdle && succeeded_) {
    effects_.push_back(SendReady{e.round});  // They are gone, and only that was said.
  }
  if (failed_) Say(e.reason);
  succeeded_ = false;  // While Stopping: Ready follows, not Succeeded, which this has overtaken.
}

void AgentMachine::On(const Dismissed& e) {
  if (!e.outcome.ok()) Say(std::string(e.outcome.message()));
  FinishWith(e.outcome.ok() ? 0 : 1, SIGTERM);
}

void AgentMachine::On(const CoordinatorLost& e) {
  if (exit_code_) return;  // After its last word, or ours, it is free to go.
  Say(absl::StrCat(
      "the coordinator is lost (", e.reason,
      "): this node ends its workers. Start the job again on all nodes; it goes on from its last snapshot"));
  FinishWith(1, SIGTERM);
}

void AgentMachine::On(const WorkerEnded& e) {
  if (alive_.erase(e.local_rank) == 0) return;
  if (state_ == State::kRunning && !Succeeded(e.exit)) {
    failed_ = true;
    const int64_t rank = assignment_.first_rank.value() + e.local_rank.value();
    effects_.push_back(SendWorkersFailed{
        assignment_.round,
        absl::StrCat("rank ", rank, " (local_rank ", e.local_rank.value(), ") on ", policy_.host,
                     " failed: ", ToString(e.exit), e.progress.empty() ? "" : ", ", e.progress)});
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

void AgentMachine::On(const WorkersGone&) {
  killing_ = false;
  grace_end_.reset();
  alive_.clear();
  if (failed_) effects_.push_back(ReportFailures{assignment_.round});
  failed_ = false;
  if (exit_code_) {
    state_ = State::kFinished;
    effects_.push_back(Finish{*exit_code_});
    return;
  }
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
  Say(absl::StrCat("received ", name, ": sending it to the workers, SIGKILL follows in ",
                   policy_.grace / seconds(1), " s, or on a second ", name));
  effects_.push_back(SendLeave{absl::StrCat("its agent received ", name)});
  const bool was_stopping = state_ == State::kStopping;
  FinishWith(1, e.signo);
  if (was_stopping && !killing_) effects_.push_back(SignalWorkers{e.signo});
}

void AgentMachine::On(const AgentBroken& e) {
  Say(std::string(e.status.message()));
  effects_.push_back(SendLeave{std::string(e.status.message())});
  FinishWith(1, SIGTERM);
}

void AgentMachine::On(const AgentTick&) {
  if (grace_end_ && now_ >= *grace_end_) {
    Say(absl::StrCat(alive_.size(), " workers did not end within ", policy_.grace / seconds(1),
                     " s: killing them"));
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

void AgentMachine::FinishWith(int exit_code, int signo) {
  if (!exit_code_) exit_code_ = exit_code;
  if (state_ == State::kIdle) {
    state_ = State::kFinished;
    effects_.push_back(Finish{*exit_code_});
  } else if (state_ == State::kRunning) {
    Stop(signo);
  }
}

void AgentMachine::Say(std::string text) { effects_.push_back(Tell{std::move(text)}); }

}  // namespace ddprun
