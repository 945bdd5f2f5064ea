#include "tests/sim/sim_node.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"
#include "proto/rendezvous.pb.h"

namespace ddprun::sim {

SimNode::SimNode(NodeInfo info, Duration lease, SimClock* clock, Trace* trace, Random* random,
                 Outside outside)
    : info_(std::move(info)),
      lease_(lease),
      clock_(clock),
      trace_(trace),
      random_(random),
      outside_(std::move(outside)),
      machine_({.nproc = info_.nproc, .host = info_.host, .grace = seconds(10)}) {}

void SimNode::Join() {
  proto::AgentMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(kProtocolVersion);
  join.set_run_id("sim");
  join.set_node_id(info_.id);
  join.set_host(info_.host);
  join.set_addr(info_.addr);
  join.set_store_port(next_port_++);
  join.set_nproc(info_.nproc);
  join.set_role("default");
  outside_.send(id(), message.SerializeAsString());
  Plan(lease_ / 3, [this] { Heartbeat(); });
}

void SimNode::Heartbeat() {
  proto::AgentMessage message;
  message.mutable_heartbeat();
  outside_.send(id(), message.SerializeAsString());
  Plan(lease_ / 3, [this] { Heartbeat(); });
}

void SimNode::InAgent(std::function<void()> what) {
  if (ended()) return;
  if (frozen_) {
    held_.push_back(std::move(what));
  } else {
    what();
  }
}

void SimNode::Plan(Duration after, std::function<void()> what) {
  clock_->After(after, [this, what = std::move(what)] { InAgent(what); });
}

void SimNode::Receive(const std::string& bytes) {
  InAgent([this, bytes] {
    proto::CoordinatorMessage m;
    if (!m.ParseFromString(bytes)) return trace_->Broken(clock_->now(), "a message does not parse");
    if (m.has_start()) {
      if (machine_.state() != AgentMachine::State::kIdle) {
        trace_->Broken(clock_->now(),
                       absl::StrCat(id(), " was told to start a round while another is not over"));
      }
      Step(RoundStarted{{.round = Round(m.start().round()),
                         .group_rank = GroupRank(m.start().group_rank()),
                         .first_rank = Rank(m.start().first_rank()),
                         .world_size = m.start().world_size()},
                        m.start().reason()});
    } else if (m.has_stop()) {
      Step(RoundStopped{Round(m.stop().round()), m.stop().reason()});
    } else if (m.has_dismiss()) {
      const bool good = m.dismiss().code() == 0;
      Step(Dismissed{good ? Dismissal::kSucceeded : Dismissal::kFailed, m.dismiss().message()});
    }
  });
}

void SimNode::LoseCoordinator(const std::string& reason) {
  InAgent([this, reason] { Step(CoordinatorLost{reason}); });
}

void SimNode::Kill() {
  if (ended()) return;
  trace_->Line(clock_->now(), absl::StrCat(id(), " killed"));
  killed_ = true;
  workers_.clear();
}

void SimNode::Thaw() {
  frozen_ = false;
  while (!held_.empty() && !frozen_ && !ended()) {
    const std::function<void()> what = std::move(held_.front());
    held_.pop_front();
    what();
  }
}

void SimNode::Step(const AgentEvent& event) {
  if (ended()) return;
  const AgentEffects effects = machine_.Step(event, clock_->now());
  for (const AgentEffect& effect : effects) Do(effect);
  SetTimer();
}

void SimNode::SetTimer() {
  const std::optional<TimePoint> due = machine_.NextDeadline();
  if (!due) return;
  Plan(*due - clock_->now(), [this, due] {
    if (machine_.NextDeadline() == due) Step(AgentTick{});
  });
}

void SimNode::Do(const AgentEffect& effect) {
  proto::AgentMessage message;
  if (const auto* e = std::get_if<StartWorkers>(&effect)) {
    StartAll(e->assignment);
  } else if (const auto* e = std::get_if<SignalWorkers>(&effect)) {
    for (const auto& [rank, worker] : workers_) {
      if (worker.deaf) continue;
      clock_->After(random_->Between(milliseconds(0), milliseconds(50)),
                    [this, rank = rank, life = worker.life, signo = e->signo] {
                      End(rank, life, Signaled{signo, false});
                    });
    }
  } else if (std::holds_alternative<KillWorkers>(effect)) {
    Plan(random_->Between(milliseconds(0), milliseconds(20)), [this] {
      const std::map<LocalRank, Worker> killed = workers_;
      for (const auto& [rank, worker] : killed) End(rank, worker.life, Signaled{SIGKILL, false});
      Step(WorkersGone{});
    });
  } else if (const auto* e = std::get_if<SendWorkersFailed>(&effect)) {
    message.mutable_workers_failed()->set_round(e->round.value());
    message.mutable_workers_failed()->set_cause(e->cause);
  } else if (const auto* e = std::get_if<SendWorkersSucceeded>(&effect)) {
    message.mutable_workers_succeeded()->set_round(e->round.value());
  } else if (const auto* e = std::get_if<SendReady>(&effect)) {
    if (!workers_.empty())
      trace_->Broken(clock_->now(), absl::StrCat(id(), " said it is ready while workers run"));
    message.mutable_ready()->set_round(e->round.value());
    message.mutable_ready()->set_store_port(next_port_++);
  } else if (const auto* e = std::get_if<SendLeave>(&effect)) {
    message.mutable_leave()->set_reason(e->reason);
  } else if (std::holds_alternative<Rejoin>(effect)) {
    clock_->After(milliseconds(1), [this] { InAgent([this] { Step(RejoinFailed{"it is gone"}); }); });
  } else if (const auto* e = std::get_if<Finish>(&effect)) {
    if (exit_code_) trace_->Broken(clock_->now(), absl::StrCat(id(), " ended twice"));
    if (!workers_.empty())
      trace_->Broken(clock_->now(), absl::StrCat(id(), " ended and left workers behind"));
    trace_->Line(clock_->now(), absl::StrCat(id(), " exits with ", e->exit_code));
    exit_code_ = e->exit_code;
    outside_.hang_up(id());
  }
  if (message.kind_case() != proto::AgentMessage::KIND_NOT_SET)
    outside_.send(id(), message.SerializeAsString());
}

void SimNode::StartAll(const Assignment& assignment) {
  if (!workers_.empty())
    trace_->Broken(clock_->now(), absl::StrCat(id(), " starts workers while others run"));
  trace_->Line(clock_->now(), absl::StrCat(id(), " starts round ", assignment.round.value(), " as node ",
                                           assignment.group_rank.value()));
  const WorkerHabits habits = outside_.habits();
  for (int i = 0; i < info_.nproc; ++i) {
    const LocalRank rank(i);
    const Worker worker{next_life_++, random_->Chance(habits.deaf)};
    workers_.emplace(rank, worker);
    const bool fails = random_->Chance(habits.fails);
    clock_->After(random_->Between(milliseconds(1), habits.longest), [this, rank, life = worker.life, fails] {
      End(rank, life, fails ? ExitInfo(Exited{1}) : ExitInfo(Exited{0}));
    });
  }
}

void SimNode::End(LocalRank rank, uint64_t life, ExitInfo exit) {
  const auto it = workers_.find(rank);
  if (it == workers_.end() || it->second.life != life) return;
  workers_.erase(it);
  InAgent([this, rank, exit] { Step(WorkerEnded{rank, exit}); });
}

}  // namespace ddprun::sim
