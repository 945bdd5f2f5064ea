#include "tests/sim/sim_agent.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"
#include "proto/rules_map.h"
#include "tests/sim/sim_coordinator.h"

namespace ddprun::sim {
namespace {

EndReason Expected(Dismissal dismissal) {
  switch (dismissal) {
    case Dismissal::kSucceeded:
      return EndReason::kSucceeded;
    case Dismissal::kFailed:
      return EndReason::kJobFailed;
    case Dismissal::kJoinTimeout:
      return EndReason::kJoinTimeout;
    case Dismissal::kExpelled:
      return EndReason::kExpelled;
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

// As in launcher/agent/local_workers.h.
constexpr Duration kKillLimit = seconds(10);

// Of the wire, which begins with UNSPECIFIED.
std::string TokenOf(const NodeId& node) { return absl::StrCat("token of ", node); }

Dismissal Decode(proto::DismissReason reason) { return static_cast<Dismissal>(static_cast<int>(reason) - 1); }

}  // namespace

SimAgent::SimAgent(Place place)
    : place_(std::move(place)),
      trace_(place_.job->trace),
      machine_({.nproc = place_.nproc,
                .host = place_.host->name(),
                .grace = place_.job->settings->grace,
                .lease = place_.job->settings->lease}),
      warden_(place_.job, place_.host, place_.habits,
              Random(place_.job->settings->seed, absl::StrCat("warden of ", place_.host->name())),
              SimWarden::Outside{.ended =
                                     [this](LocalRank rank, ExitInfo exit, bool consequence) {
                                       InAgent([this, rank, exit, consequence] {
                                         OnWorkerEnded(rank, exit, consequence);
                                       });
                                     },
                                 .report =
                                     [this](Round round, int64_t step, std::optional<int64_t> snapshot) {
                                       InAgent([this, round, step, snapshot] {
                                         if (round != assignment_.round) return;
                                         step_ = step;
                                         if (snapshot) Step(SnapshotReported{round, *snapshot});
                                       });
                                     },
                                 .fenced =
                                     [this] {
                                       InAgent([this] {
                                         ordered_ = true;
                                         Step(Fenced{});
                                       });
                                     },
                                 .all_dead =
                                     [this] {
                                       InAgent([this] {
                                         fence_.WorkersGone();
                                         Step(WorkersGone{});
                                       });
                                     }}),
      fence_([this](std::optional<BootTime> deadline) {
        if (is_local()) return;
        warden_.Fence(deadline ? std::optional(TimePoint(deadline->time_since_epoch())) : std::nullopt);
      }) {}

void SimAgent::InAgent(std::function<void()> what) {
  if (ended()) return;
  if (frozen_) {
    held_.push_back(std::move(what));
  } else {
    what();
  }
}

void SimAgent::Start() { Find(place_.job->settings->join_timeout, /*again=*/false); }

void SimAgent::Find(Duration limit, bool again) {
  if (link_ != nullptr) {
    link_->Close();
    place_.host->After(Duration(0), [old = link_] {});  // It may be calling us.
  }
  link_ = std::make_shared<SimLink>(
      SimLink::Place{place_.host, place_.job->tcp, trace_, place_.coordinator_host, place_.local},
      SimLink::Handlers{
          .on_open = [this] { Join(); },
          .on_message = [this](const proto::CoordinatorMessage& message) { OnMessage(message); },
          .on_answered = [this](TimePoint sent) { fence_.Answered(sent); },
          .heartbeat =
              [this](proto::Heartbeat& heartbeat) {
                fence_.BeforeSign(place_.host->now(), BootNow());
                if (warden_.alive() == 0) return;
                heartbeat.set_round(assignment_.round.value());
                if (step_) heartbeat.set_step(*step_);
                heartbeat.set_phase("training");
              },
          .on_lost = [this](const std::string& why) { Step(CoordinatorLost{why}); },
          .on_not_found =
              [this, again](const std::string& why) {
                if (again) return Step(RejoinFailed{why});
                trace_->Line(place_.job->clock->now(),
                             absl::StrCat(place_.host->name(), " found no coordinator"));
                Finished({EndReason::kJoinTimeout, 1});
              },
          .heartbeat_interval = place_.job->settings->lease / 4});
  link_->set_hold([this](std::function<void()> what) { InAgent(std::move(what)); });
  link_->Find(limit, again);
}

JobRules SimAgent::Rules() const {
  const Settings& s = *place_.job->settings;
  return {.min_nodes = s.min_nodes,
          .max_nodes = s.max_nodes,
          .max_restarts = s.max_restarts,
          .first_last_call = s.first_last_call,
          .last_call = s.last_call,
          .join_timeout = s.join_timeout,
          .lease = s.lease,
          .node_unit = s.node_unit,
          .scale_up = static_cast<ScaleUp>(s.scale_up),
          .snapshot_timeout = s.snapshot_timeout,
          .min_uptime = s.min_uptime,
          .max_restarts_without_progress = s.max_restarts_without_progress};
}

void SimAgent::Join() {
  const NodeId previous = std::exchange(id_, place_.new_node_id());
  fence_.Joined(place_.job->settings->lease, BootNow());
  proto::AgentMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(kProtocolVersion);
  join.set_run_id("sim");
  join.set_node_id(id_);
  join.set_host(place_.host->name());
  join.set_stop_timeout_ms(ToMillis(place_.job->settings->drain_timeout));
  join.set_gone_token(TokenOf(id_));
  if (!previous.empty()) {
    join.set_previous_node_id(previous);
    join.set_previous_gone_token(TokenOf(previous));
  }
  join.set_addr(place_.host->addr());
  join.set_store_port(place_.new_port());
  join.set_nproc(place_.nproc);
  join.set_role("default");
  EncodeRules(Rules(), *join.mutable_rules());
  for (const std::string& host : place_.expected_hosts) join.add_expected_hosts(host);
  trace_->Line(place_.job->clock->now(), absl::StrCat(place_.host->name(), " joins as ", id_));
  link_->Send(message);
}

void SimAgent::OnMessage(const proto::CoordinatorMessage& m) {
  if (m.has_welcome()) {
    fence_.LeaseFrom(milliseconds(m.welcome().heartbeat_ms()));
    if (machine_.state() == AgentMachine::State::kSeeking) Step(Rejoined{});
  } else if (m.has_start()) {
    if (machine_.state() != AgentMachine::State::kIdle) {
      trace_->Broken(place_.job->clock->now(),
                     absl::StrCat(id_, " was told to start a round while another is not over"));
    }
    const proto::Start& start = m.start();
    Step(RoundStarted{{.round = Round(start.round()),
                       .group_rank = GroupRank(start.group_rank()),
                       .group_world_size = start.group_world_size(),
                       .first_rank = Rank(start.first_rank()),
                       .world_size = start.world_size(),
                       .restart_count = start.restart_count(),
                       .master_addr = start.master_addr(),
                       .master_port = start.master_port()},
                      start.reason()});
  } else if (m.has_stop()) {
    Step(RoundStopped{Round(m.stop().round()), m.stop().reason()});
  } else if (m.has_take_snapshot()) {
    Step(SnapshotWanted{Round(m.take_snapshot().round()), m.take_snapshot().reason(), step_.value_or(0)});
  } else if (m.has_dismiss()) {
    const Dismissal reason = Decode(m.dismiss().reason());
    if (EndsTheJob(reason)) {
      fence_.JobOver(BootNow() + place_.job->settings->grace + kKillLimit);
    }
    if (reason != Dismissal::kExpelled) {
      if (!decided_) dismissed_ = reason;
      decided_ = true;
    }
    Step(Dismissed{reason, m.dismiss().message()});
  }
}

void SimAgent::OnWorkerEnded(LocalRank rank, const ExitInfo& exit, bool consequence) {
  // One that has obeyed us has not failed.
  if (!Succeeded(exit) && (!ordered_ || std::holds_alternative<Exited>(exit))) {
    proto::Failure& failure = failures_.emplace_back();
    failure.set_rank(assignment_.first_rank.value() + rank.value());
    failure.set_local_rank(static_cast<int>(rank.value()));
    failure.set_host(place_.host->name());
    failure.set_role("default");
    if (const auto* e = std::get_if<Exited>(&exit)) failure.set_exit_code(e->code);
    if (const auto* e = std::get_if<Signaled>(&exit)) failure.set_signal(e->signo);
    if (std::holds_alternative<NeverStarted>(exit)) failure.set_exit_code(1);
    failure.set_consequence(consequence);
    failure.set_uptime_ms(ToMillis(place_.host->now() - started_at_));
    if (step_) failure.set_step(*step_);
  }
  Step(WorkerEnded{rank, exit});
}

void SimAgent::Signal(int signo) {
  InAgent([this, signo] {
    decided_ = true;
    Step(SignalReceived{signo});
  });
}

void SimAgent::Kill() {
  if (ended()) return;
  killed_ = true;
  warden_.LoseAgent([this] { ReportGone(); });
  if (link_ != nullptr) link_->Close();
}

void SimAgent::ReportGone() {
  if (id_.empty() || is_local()) return;
  auto socket = std::make_shared<SimSocket>();
  *socket =
      place_.job->tcp->Connect(place_.host->id(), place_.coordinator_host, SimCoordinator::kGonePort,
                               {.on_open =
                                    [this, socket] {
                                      place_.job->tcp->Send(*socket, absl::StrCat(id_, " ", TokenOf(id_)));
                                      place_.job->tcp->Shutdown(*socket);
                                    },
                                .on_message = [](const std::string&) {},
                                .on_end = [](StreamEnd) {}});
}

void SimAgent::KillWarden() {
  if (ended()) return;
  const int alive = warden_.alive();
  warden_.Vanish();
  InAgent([this, alive] {
    ordered_ = decided_ = true;
    Step(AgentBroken{absl::InternalError("the warden was killed")});
    for (int i = 0; i < (alive > 0 ? place_.nproc : 0); ++i) {
      Step(WorkerEnded{LocalRank(i), Signaled{SIGKILL, false}});
    }
    Step(WorkersGone{});
  });
}

bool SimAgent::ResetLink() { return link_ != nullptr && link_->Reset(); }

void SimAgent::FailWorker(ExitInfo exit) {
  if (warden_.workers() != nullptr) warden_.workers()->Fail(exit);
}

void SimAgent::Vanish() {
  killed_ = true;
  warden_.Vanish();
  link_.reset();
}

void SimAgent::Thaw() {
  frozen_ = false;
  while (!held_.empty() && !frozen_) {
    const std::function<void()> what = std::move(held_.front());
    held_.pop_front();
    InAgent(what);
  }
}

void SimAgent::Step(const AgentEvent& event) {
  if (ended()) return;
  const AgentEffects effects = machine_.Step(event, place_.host->now());
  for (const AgentEffect& effect : effects) {
    if (!ended()) Do(effect);
  }
  if (!ended()) SetTimer();
}

void SimAgent::SetTimer() {
  const std::optional<TimePoint> due = machine_.NextDeadline();
  if (!due) return;
  place_.host->At(*due, [this, due] {
    InAgent([this, due] {
      if (machine_.NextDeadline() == due) Step(AgentTick{});
    });
  });
}

void SimAgent::Do(const AgentEffect& effect) {
  proto::AgentMessage message;
  if (const auto* e = std::get_if<StartWorkers>(&effect)) {
    if (warden_.alive() > 0) {
      trace_->Broken(place_.job->clock->now(), absl::StrCat(id_, " starts workers while others run"));
    }
    trace_->Line(place_.job->clock->now(), absl::StrCat(id_, " starts round ", e->assignment.round.value(),
                                                        " as node ", e->assignment.group_rank.value()));
    assignment_ = e->assignment;
    started_at_ = place_.host->now();
    step_.reset();
    failures_.clear();
    ordered_ = false;
    fence_.WorkersStart();
    warden_.Spawn(e->assignment, place_.nproc);
  } else if (const auto* e = std::get_if<SignalWorkers>(&effect)) {
    ordered_ = true;
    warden_.SignalAll(e->signo);
  } else if (std::holds_alternative<KillWorkers>(effect)) {
    ordered_ = true;
    warden_.KillAll();
  } else if (std::holds_alternative<AskForSnapshot>(effect)) {
    if (warden_.workers() != nullptr) warden_.workers()->WantSnapshot();
  } else if (const auto* e = std::get_if<SendWorkersFailed>(&effect)) {
    proto::WorkersFailed& failed = *message.mutable_workers_failed();
    failed.set_round(e->round.value());
    if (failures_.empty()) {
      trace_->Broken(place_.job->clock->now(), absl::StrCat(id_, " told a failure that was its own doing"));
      return;
    }
    *failed.mutable_failure() = failures_.back();
    failed.mutable_failure()->set_cause(e->cause);
  } else if (const auto* e = std::get_if<SendWorkersSucceeded>(&effect)) {
    message.mutable_workers_succeeded()->set_round(e->round.value());
  } else if (const auto* e = std::get_if<SendReady>(&effect)) {
    if (warden_.alive() > 0) {
      trace_->Broken(place_.job->clock->now(), absl::StrCat(id_, " said it is ready while workers run"));
    }
    message.mutable_ready()->set_round(e->round.value());
    message.mutable_ready()->set_store_port(place_.new_port());
    for (const proto::Failure& failure : failures_) *message.mutable_ready()->add_failures() = failure;
  } else if (const auto* e = std::get_if<SendSnapshotTaken>(&effect)) {
    message.mutable_snapshot_taken()->set_round(e->round.value());
    message.mutable_snapshot_taken()->set_step(e->step);
  } else if (const auto* e = std::get_if<SendLeave>(&effect)) {
    message.mutable_leave()->set_reason(e->reason);
    message.mutable_leave()->set_workers_gone(e->workers_gone);
  } else if (const auto* e = std::get_if<Rejoin>(&effect)) {
    Find(e->limit, /*again=*/true);
  } else if (const auto* e = std::get_if<Tell>(&effect)) {
    trace_->Line(place_.job->clock->now(), absl::StrCat(id_, ": ", e->text));
  } else if (const auto* e = std::get_if<Finish>(&effect)) {
    return Finished(*e);
  }
  if (message.kind_case() != proto::AgentMessage::KIND_NOT_SET && link_ != nullptr) link_->Send(message);
}

void SimAgent::Finished(const Finish& finish) {
  const TimePoint now = place_.job->clock->now();
  if (warden_.alive() > 0) trace_->Broken(now, absl::StrCat(id_, " ended and left workers behind"));
  if (dismissed_ && Expected(*dismissed_) != finish.reason) {
    trace_->Broken(
        now, absl::StrCat(id_, " was let go (", ToString(*dismissed_), "), but ended for another reason"));
  }
  trace_->Line(now, absl::StrCat(id_, " exits with ", finish.exit_code));
  end_ = finish.reason;
  link_->Close();
  place_.ended();
}

}  // namespace ddprun::sim
