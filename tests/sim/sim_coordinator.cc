#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/server/round_codec.h"

namespace ddprun::sim {

SimCoordinator::SimCoordinator(SimClock* clock, Trace* trace, RoundPolicy policy, Send send,
                               HasWorkers has_workers)
    : clock_(clock),
      trace_(trace),
      machine_(policy),
      send_(std::move(send)),
      has_workers_(std::move(has_workers)) {}

void SimCoordinator::Receive(const NodeId& node, const std::string& bytes) {
  proto::AgentMessage message;
  if (!message.ParseFromString(bytes)) return trace_->Broken(clock_->now(), "a message does not parse");
  if (message.has_join()) {
    const absl::StatusOr<NodeInfo> info = DecodeJoin(message.join(), "10.0.0.1");
    if (!info.ok()) return trace_->Broken(clock_->now(), info.status().message());
    last_heard_[node] = clock_->now();
    return Step(NodeJoined{*info});
  }
  const absl::StatusOr<RoundEvent> event = DecodeEvent(message, node);
  if (!event.ok()) return trace_->Broken(clock_->now(), event.status().message());
  if (last_heard_.contains(node)) last_heard_[node] = clock_->now();
  Step(*event);
}

void SimCoordinator::Lose(const NodeId& node, const std::string& reason) { Step(NodeLost{node, reason}); }

void SimCoordinator::Step(const RoundEvent& event) {
  const RoundEffects effects = machine_.Step(event, clock_->now());
  CheckStep(event, effects);
  for (const RoundEffect& effect : effects) {
    if (const auto* note = std::get_if<Note>(&effect)) {
      trace_->Line(clock_->now(), absl::StrCat("coordinator ", note->event, ": ", note->reason));
    } else if (const std::optional<Addressed> out = EncodeEffect(effect)) {
      send_(out->node, out->message.SerializeAsString(), out->last);
    }
  }
  SetTimer();
}

void SimCoordinator::SetTimer() {
  const std::optional<TimePoint> due = machine_.NextDeadline();
  if (!due || (timer_at_ && *timer_at_ <= *due)) return;
  timer_at_ = *due;
  clock_->At(*due, [this, at = *due] {
    if (timer_at_ != at) return;
    timer_at_.reset();
    if (stalled()) {
      timer_at_ = stalled_until_;
      clock_->At(stalled_until_, [this] {
        timer_at_.reset();
        Step(Tick{});
      });
      return;
    }
    Step(Tick{});
  });
}

void SimCoordinator::CheckStep(const RoundEvent& event, const RoundEffects& effects) {
  const TimePoint now = clock_->now();
  const RoundPolicy& policy = machine_.policy();
  std::map<NodeId, Assignment> sealed;
  for (const RoundEffect& effect : effects) {
    if (const auto* e = std::get_if<Assign>(&effect)) {
      if (!sealed.emplace(e->node, e->assignment).second) trace_->Broken(now, "a node is twice in a round");
    } else if (const auto* e = std::get_if<Dismiss>(&effect)) {
      last_heard_.erase(e->node);
    }
    const bool harmless = std::holds_alternative<Dismiss>(effect) || std::holds_alternative<Refuse>(effect);
    if (was_closed_ && !harmless) trace_->Broken(now, "something happened after the job was closed");
  }
  if (!sealed.empty()) CheckSealed(sealed);

  // A round goes up by one with each sealing and never otherwise.
  const Round expected(last_round_.value() + (sealed.empty() ? 0 : 1));
  if (machine_.round() != expected) trace_->Broken(now, "a round was skipped, reused, or went back");
  const Round ended = std::exchange(last_round_, machine_.round());

  // A restart is charged when a round has ended on all its nodes, in the step that may seal the next one.
  if (std::holds_alternative<WorkersFailed>(event)) failure_told_ = true;
  const int charged = machine_.restarts() - last_restarts_;
  if (charged != 0) {
    if (charged != 1 || !failure_told_) trace_->Broken(now, "a restart was charged without a failure");
    if (charged_round_ == ended) trace_->Broken(now, "two restarts were charged for one round");
    if (machine_.restarts() > policy.max_restarts) trace_->Broken(now, "more restarts than allowed");
    charged_round_ = ended;
    last_restarts_ = machine_.restarts();
  }
  if (!sealed.empty()) failure_told_ = false;
  if (was_closed_ && machine_.state() != RoundMachine::State::kClosed)
    trace_->Broken(now, "a closed job came back");
  was_closed_ = machine_.state() == RoundMachine::State::kClosed;
  if (was_closed_ && machine_.membership().size() > 0)
    trace_->Broken(now, "a waiter of a closed job was not answered");

  // No member is kept that has been silent for longer than its lease and a late step's grace.
  for (const auto& [id, member] : machine_.membership().members()) {
    if (member.lease_end <= now)
      trace_->Broken(now, absl::StrCat(id, " is a member though its lease ran out"));
  }
}

void SimCoordinator::CheckSealed(const std::map<NodeId, Assignment>& sealed) {
  const TimePoint now = clock_->now();
  const RoundPolicy& policy = machine_.policy();
  ++rounds_sealed_;
  const int n = static_cast<int>(sealed.size());
  if (n < policy.min_nodes || n > policy.max_nodes) {
    trace_->Broken(now, absl::StrCat("a round of ", n, " nodes, allowed are ", policy.min_nodes, " to ",
                                     policy.max_nodes));
  }
  std::map<int64_t, std::pair<NodeId, Assignment>> by_rank;
  for (const auto& [id, a] : sealed) {
    by_rank[a.group_rank.value()] = {id, a};
    if (has_workers_(id))
      trace_->Broken(now, absl::StrCat(id, " got a round while workers of the last one run"));
    // After a stall of the coordinator itself everybody has a lease to be heard again.
    const auto heard = last_heard_.find(id);
    const bool after_stall = now <= stalled_until_ + policy.lease;
    if (heard == last_heard_.end() || (!after_stall && now - heard->second > policy.lease)) {
      trace_->Broken(now, absl::StrCat(id, " is in a new round though silent for longer than its lease"));
    }
  }
  if (static_cast<int>(by_rank.size()) != n || by_rank.rbegin()->first != n - 1) {
    return trace_->Broken(now, "group ranks are not 0 to n-1");
  }
  const Assignment& first = by_rank[0].second;
  int64_t next_rank = 0;
  for (const auto& [rank, node] : by_rank) {
    const Assignment& a = node.second;
    if (a.first_rank.value() != next_rank) trace_->Broken(now, "ranks do not follow each other");
    next_rank += machine_.membership().Find(node.first)->info.nproc;
    if (a.round != first.round || a.world_size != first.world_size || a.group_world_size != n ||
        a.master_addr != first.master_addr || a.master_port != first.master_port ||
        a.restart_count != first.restart_count) {
      trace_->Broken(now, "nodes of one round were told different things");
    }
  }
  if (next_rank != first.world_size) trace_->Broken(now, "the world size is not the sum of the workers");
}

}  // namespace ddprun::sim
