#include "launcher/agent/agent_driver.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/dismissal.h"
#include "proto/evidence_codec.h"
#include "proto/value_codec.h"

namespace ddprun {
namespace {

// Times from the coordinator are limited, so that no sum overflows.
Duration ClampedMillis(int64_t ms) {
  constexpr int64_t kMost = int64_t{1000} * 3600 * 24 * 365;
  return milliseconds(std::clamp<int64_t>(ms, 0, kMost));
}

std::set<int> NumbersOf(const std::vector<PreemptSignal>& signals) {
  std::set<int> numbers;
  for (const PreemptSignal& signal : signals) numbers.insert(signal.signo);
  return numbers;
}

Assignment FromStart(const proto::Start& start) {
  return {.round = Round(start.round()),
          .group_rank = GroupRank(start.group_rank()),
          .group_world_size = start.group_world_size(),
          .first_rank = Rank(start.first_rank()),
          .world_size = start.world_size(),
          .first_role_rank = start.first_role_rank(),
          .role_world_size = start.role_world_size(),
          .restart_count = start.restart_count(),
          .master_addr = start.master_addr(),
          .master_port = start.master_port()};
}

AgentPolicy PolicyOf(const LaunchConfig& config, Duration seek_limit) {
  AgentPolicy policy{.nproc = config.num_local_workers,
                     .grace = config.shutdown_timeout,
                     .lease = config.rdzv.lease,
                     .exit_codes = config.exit_codes,
                     .notice_signals = NumbersOf(config.preempt_signals)};
  policy.seek_limit = seek_limit > Duration::zero() ? seek_limit : policy.lease + kSeekBeyondLease;
  return policy;
}

}  // namespace

AgentDriver::AgentDriver(Parts parts)
    : config_(*parts.config),
      world_(*parts.world),
      timer_(std::move(parts.timer)),
      node_(std::move(parts.node)),
      machine_(PolicyOf(config_, parts.seek_limit)),
      fence_([this, leased = parts.leased](std::optional<BootTime> deadline) {
        if (leased) world_.FenceWorkers(deadline);
      }),
      beats_(config_.rules.hang_timeout, /*outside=*/world_.sees_activity()) {}

void AgentDriver::Join(std::unique_ptr<CoordinatorLink> link) {
  const absl::StatusOr<int> port = world_.OfferStore();
  if (!port.ok()) return Step(AgentBroken{port.status()});
  NodeIdentity self = world_.NewIdentity();
  node_.previous_id = std::exchange(node_.id, std::move(self.id));
  node_.previous_token = std::exchange(node_.gone_token, std::move(self.gone_token));
  node_.store_port = *port;
  node_.gone = world_.GoneNodes();
  if (last_) {
    LastRound& last = node_.last.emplace();
    last.assignment = last_->assignment;
    if (const int64_t step = world_.FurthestStep(last_->assignment.round); step > 0) last.step = step;
    last.ran = last_->gone_at.value_or(timer_->Now()) - last_->started_at;
  }
  link_ = std::move(link);
  joined_ = false;
  link_->Start(
      {.on_open =
           [this] {
             joined_ = true;
             fence_.Joined(config_.rdzv.lease, world_.BootNow());
             Send(JoinMessage(config_, node_));
           },
       .on_message = [this](const proto::CoordinatorMessage& m) { OnMessage(m); },
       .on_lost = [this](const absl::Status& why) { Step(CoordinatorLost{std::string(why.message())}); },
       .heartbeat =
           [this](proto::Heartbeat& heartbeat) {
             fence_.BeforeSign(timer_->Now(), world_.BootNow());
             world_.FillIn(heartbeat);
           },
       .on_answered = [this](TimePoint sent,
                             std::optional<Duration> lead_left) { fence_.Answered(sent, lead_left); },
       .heartbeat_interval = config_.rdzv.lease / 4});
  world_.OnWaiting();
}

void AgentDriver::OnMessage(const proto::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kHeard:
      return;  // The link handles answers to heartbeats.
    case proto::CoordinatorMessage::kWelcome: {
      const proto::Welcome& welcome = message.welcome();
      std::optional<Duration> lead_left;
      if (welcome.has_lead_left_ms()) lead_left = ClampedMillis(welcome.lead_left_ms());
      fence_.LeaseFrom(milliseconds(welcome.heartbeat_ms()), lead_left);
      world_.OnWelcome({node_.id, node_.gone_token});
      return Step(Welcomed{});
    }
    case proto::CoordinatorMessage::kTakeSnapshot: {
      const proto::TakeSnapshot& order = message.take_snapshot();
      const Round round(order.round());
      SnapshotWanted wanted{round, order.reason(), world_.FurthestStep(round)};
      if (order.has_stop_within_ms()) wanted.stop_within = ClampedMillis(order.stop_within_ms());
      if (order.has_left_ms()) wanted.left = ClampedMillis(order.left_ms());
      return Step(wanted);
    }
    case proto::CoordinatorMessage::kCollectEvidence:
      return CollectEvidence(message.collect_evidence());
    case proto::CoordinatorMessage::kCollectStacks:
      return world_.CollectStacks(message.collect_stacks(),
                                  [this, request = message.collect_stacks().request()](proto::Stacks stacks) {
                                    proto::AgentMessage answer;
                                    *answer.mutable_stacks() = std::move(stacks);
                                    answer.mutable_stacks()->set_request(request);
                                    Send(answer);
                                  });
    case proto::CoordinatorMessage::kReport:
      return world_.OnReport(message.report());
    case proto::CoordinatorMessage::kWaiting:
      return world_.OnWaitingFor(message.waiting().text(), milliseconds(message.waiting().start_in_ms()));
    case proto::CoordinatorMessage::kStart:
      return Step(RoundStarted{FromStart(message.start()), message.start().reason()});
    case proto::CoordinatorMessage::kStop: {
      const proto::Stop& stop = message.stop();
      RoundStopped stopped{Round(stop.round()), stop.reason(), stop.no_round_follows()};
      for (const int rank : stop.hung_local_ranks()) stopped.hung.emplace_back(rank);
      return Step(stopped);
    }
    case proto::CoordinatorMessage::kDismiss: {
      const Dismissal reason = DecodeDismissal(message.dismiss().reason());
      world_.OnDismissed();
      // Parked workers of a node that takes part in no further round have the whole grace period.
      if (EndsTheJob(reason) || (IsFinal(reason) && machine_.alive() > 0)) {
        fence_.JobOver(world_.BootNow() + config_.shutdown_timeout + kKillLimit);
      }
      return Step(Dismissed{reason, message.dismiss().message()});
    }
    case proto::CoordinatorMessage::kRefuse:
      return world_.OnRefused(message.refuse().message());
    case proto::CoordinatorMessage::KIND_NOT_SET:
      return world_.Say("ignoring a message of unknown kind from the coordinator");
  }
}

void AgentDriver::Step(const AgentEvent& event) {
  if (const auto* ended = std::get_if<WorkerEnded>(&event); ended != nullptr && watching_) {
    beats_.Ended(ended->local_rank);
  }
  const AgentEffects effects = machine_.Step(event, timer_->Now());
  if (std::holds_alternative<WorkersGone>(event) && machine_.alive() == 0) {
    fence_.WorkersGone();
    if (last_ && !last_->gone_at) last_->gone_at = timer_->Now();
  }
  for (const AgentEffect& effect : effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  if (const std::optional<absl::Status> broken = std::exchange(broken_, std::nullopt)) {
    return Step(AgentBroken{*broken});
  }
  if (machine_.state() == AgentMachine::State::kFinished) return;
  if (watching_ && machine_.state() != AgentMachine::State::kRunning) {
    watching_ = false;
    beats_.Over(timer_->Now());
  }
  if (watching_ && std::holds_alternative<WorkerEnded>(event)) Look();
  world_.OnStep(machine_);
  SetTimer();
}

void AgentDriver::SetTimer() {
  look_at_.reset();
  if (watching_ && (judges() || meter_.has_steps())) look_at_ = NextTick(looked_at_, BeatTable::kLookEvery);
  std::optional<TimePoint> next = machine_.NextDeadline();
  if (look_at_) next = std::min(*look_at_, next.value_or(*look_at_));
  if (next == timer_at_) return;
  timer_at_ = next;
  timer_->Set(next, [this] { OnTimer(); });
}

void AgentDriver::OnTimer() {
  timer_at_.reset();
  const TimePoint now = timer_->Now();
  if (look_at_ && now >= *look_at_) {
    LookAround();
    Look();
    SendStepTimes();
  }
  if (const std::optional<TimePoint> due = machine_.NextDeadline(); due && now >= *due)
    return Step(AgentTick{});
  SetTimer();
}

void AgentDriver::LookAround() {
  if (!judges()) return;
  const TimePoint now = timer_->Now();
  const AgentWorld::WorkerSigns signs = world_.Signs();
  if (signs.output_held) beats_.Skip(now);
  for (const LocalRank worker : signs.touched) beats_.Touched(worker, now);
  if (!beats_.needs_signs()) return;
  const bool looks =
      world_.LookForActivity([this, round = last_->assignment.round](const std::vector<LocalRank>& workers) {
        if (!watching_ || round != last_->assignment.round) return;
        for (const LocalRank worker : workers) beats_.Seen(worker, timer_->Now());
      });
  if (!looks) beats_.Skip(now);  // nothing is known of the time since the last look
}

void AgentDriver::Look() {
  looked_at_ = timer_->Now();
  if (!judges()) return;
  const NodeStandstill now = beats_.Look(looked_at_);
  if (now.level == told_.level && now.reports == told_.reports && now.ended == told_.ended) return;
  told_ = now;
  proto::AgentMessage message;
  *message.mutable_standstill() = EncodeStandstill(now);
  message.mutable_standstill()->set_round(last_->assignment.round.value());
  Send(message);
}

void AgentDriver::SendStepTimes() {
  constexpr int kMost = 1024;
  const std::vector<WorkerSteps> workers = meter_.Take(timer_->Now(), kMost);
  if (workers.empty()) return;
  proto::AgentMessage message;
  *message.mutable_step_times() = EncodeStepTimes(workers);
  message.mutable_step_times()->set_round(last_->assignment.round.value());
  Send(message);
}

void AgentDriver::Reported(Round round, LocalRank worker, int64_t step, WorkerPhase phase) {
  if (!watching_ || round != last_->assignment.round || worker.value() >= config_.num_local_workers) return;
  beats_.Reported(worker, step, phase, timer_->Now());
  meter_.Reported(worker, step, phase, world_.Waited(worker), timer_->Now());
  if (judges() && (!told_.reports || told_.level != StandstillLevel::kMoving)) Look();
  if (!look_at_) SetTimer();
}

void AgentDriver::CollectEvidence(const proto::CollectEvidence& order) {
  const Round round(order.round());
  if (!watching_ || round != last_->assignment.round) return;
  world_.CollectEvidence([this, round, request = order.request(), max_bytes = order.max_bytes()](
                             std::vector<WorkerEvidence> workers, const std::vector<std::string>& missing) {
    if (!watching_ || round != last_->assignment.round) return;
    for (WorkerEvidence& worker : workers) worker.idle = beats_.idle(worker.local_rank);
    proto::AgentMessage message;
    proto::Evidence& evidence = *message.mutable_evidence();
    evidence.set_round(round.value());
    evidence.set_request(request);
    EncodeWorkers(workers, missing, max_bytes, evidence);
    Send(message);
  });
}

void AgentDriver::Send(const proto::AgentMessage& message) {
  if (link_ != nullptr && joined_) link_->Send(message);
}

void AgentDriver::Do(const StartWorkers& e) {
  fence_.WorkersStart();
  last_ = {e.assignment, timer_->Now()};
  watching_ = true;
  beats_.Begin(config_.num_local_workers, e.assignment.world_size, timer_->Now());
  meter_.Begin(config_.num_local_workers);
  told_ = {};
  looked_at_ = timer_->Now();
  (void)world_.Signs();  // those of the workers of the round before
  world_.StartWorkers(e.assignment, e.keep);
}

void AgentDriver::Do(const SignalWorkers& e) { world_.SignalWorkers(e.signo, e.spare); }
void AgentDriver::Do(const KillWorkers& e) { world_.KillWorkers(e.spare); }
void AgentDriver::Do(const TellSurvivors& e) { world_.TellSurvivors(e); }
void AgentDriver::Do(const AskForSnapshot& e) { world_.AskForSnapshot(e.round, e.stop); }

void AgentDriver::Do(const SendWorkersFailed& e) {
  if (e.parked) world_.RecordParked(e.local_rank, *e.parked);
  world_.OnFailure();
  proto::AgentMessage message;
  proto::WorkersFailed& failed = *message.mutable_workers_failed();
  failed.set_round(e.round.value());
  *failed.mutable_failure() = EncodeFailure(world_.FailureOf(e.local_rank), timer_->Now());
  Send(message);
}

void AgentDriver::Do(const SendWorkersSucceeded& e) {
  proto::AgentMessage message;
  message.mutable_workers_succeeded()->set_round(e.round.value());
  message.mutable_workers_succeeded()->set_finished(!e.by_signal && world_.SayFinished(e.round));
  Send(message);
}

void AgentDriver::Do(const SendReady& e) {
  const absl::StatusOr<int> port = world_.OfferStore();
  if (!port.ok()) {
    broken_ = port.status();
    return;
  }
  proto::AgentMessage message;
  proto::Ready& ready = *message.mutable_ready();
  ready.set_round(e.round.value());
  ready.set_store_port(*port);
  if (const std::optional<int64_t> step = world_.SlowestStep(e.round)) ready.set_step(*step);
  for (const Failure& failure : world_.Failures()) {
    *ready.add_failures() = EncodeFailure(failure, timer_->Now());
  }
  world_.OnWaiting();
  Send(message);
}

void AgentDriver::Do(const SendSnapshotTaken& e) {
  proto::AgentMessage message;
  message.mutable_snapshot_taken()->set_round(e.round.value());
  message.mutable_snapshot_taken()->set_step(e.step);
  Send(message);
}

void AgentDriver::Do(const SendPreempted& e) {
  proto::AgentMessage message;
  message.mutable_preempted()->set_left_ms(ToMillis(e.left));
  message.mutable_preempted()->set_reason(e.reason);
  Send(message);
}

void AgentDriver::Do(const SendLeave& e) {
  proto::AgentMessage message;
  message.mutable_leave()->set_reason(e.reason);
  message.mutable_leave()->set_workers_gone(e.workers_gone);
  Send(message);
}

void AgentDriver::Do(const Rejoin& e) {
  world_.OnSeeking();
  if (link_ != nullptr) {
    link_->Close();
    old_link_ = std::move(link_);
  }
  world_.FindCoordinator(e.limit, [this](SearchResult result) {
    // The agent may have stopped seeking, for example because of a signal.
    if (machine_.state() != AgentMachine::State::kSeeking) return;
    if (auto* link = std::get_if<std::unique_ptr<CoordinatorLink>>(&result)) return Join(std::move(*link));
    if (const auto* over = std::get_if<Dismissed>(&result)) return Step(*over);
    Step(RejoinFailed{std::string(std::get<absl::Status>(result).message())});
  });
}

void AgentDriver::Do(const ReportFailures&) { world_.ReportFailures(); }
void AgentDriver::Do(const Tell& e) { world_.Say(e.text); }

void AgentDriver::Do(const Finish& e) {
  timer_->Set(std::nullopt, {});
  if (link_ != nullptr) link_->Close();
  world_.OnStep(machine_);
  world_.OnFinish(e);
}

}  // namespace ddprun
