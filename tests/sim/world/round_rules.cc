#include "tests/sim/world/round_rules.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

using State = RoundMachine::State;

template <typename Set>
bool Has(const Set& set, const NodeId& id) {
  return set.find(id) != set.end();
}

}  // namespace

RoundRules::RoundRules(Trace* trace, JobRules policy, NodeFacts facts)
    : trace_(trace),
      policy_(std::move(policy)),
      facts_(std::move(facts)),
      notices_(policy_.join_timeout, [this](const std::string& rule) { Broken(rule); }),
      admission_(policy_.admission, [this](const std::string& rule) { Broken(rule); }) {}

void RoundRules::Broken(const std::string& rule) { trace_->Broken(sim_now_, rule); }

void RoundRules::Check(const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine,
                       TimePoint now, TimePoint sim_now) {
  machine_ = &machine;
  now_ = now;
  sim_now_ = sim_now;
  admission_.Note(event, members_);
  Note(event);
  NoteHung(effects);
  CheckEnd(event, effects);
  Sealed sealed;
  CheckEffects(effects, sealed);
  notices_.CheckEffects(effects, machine);
  notices_.Forget(machine.membership());
  admission_.Check(effects, machine, Needed());
  const bool round_is_over = state_ == State::kDraining && machine.state() != State::kDraining;
  CheckBlame(round_is_over);
  CheckCharge(!sealed.empty());
  const Round next(round_ ? round_->value() + 1 : 0);
  if (machine.round() != (sealed.empty() ? round_ : next))
    Broken("a round number was skipped, reused or decreased");
  if (!sealed.empty()) CheckSealed(sealed);
  CheckLeases();
  if (state_ == State::kClosed && machine.state() != State::kClosed) Broken("a closed job was reopened");
  if (machine.state() == State::kClosed && machine.membership().size() > 0) {
    Broken("a closed job has members");
  }

  state_ = machine.state();
  round_ = machine.round();
  members_.clear();
  lost_nodes_.clear();
  in_round_.clear();
  working_.clear();
  for (const auto& [id, member] : machine.membership().members()) {
    members_.insert(id);
    if (member.phase == Phase::kLost) lost_nodes_.insert(id);
    if (member.phase != Phase::kWaiting) in_round_.insert(id);
    if (member.phase == Phase::kRunning || member.phase == Phase::kStopping) working_.insert(id);
  }
  for (std::set<NodeId>* ids : {&to_be_drained_, &owed_}) {
    std::erase_if(*ids, [this](const NodeId& id) { return !Has(members_, id); });
  }
}

// Updates the model of the job. The model follows the documentation, not the code of RoundMachine.
void RoundRules::Note(const RoundEvent& event) {
  const auto step = [this](int64_t step) {
    step_reported_ = true;
    if (furthest_ && step <= *furthest_) return;
    furthest_ = step;
    further_ = true;
  };
  const auto speaks = [this](const NodeId& id, Round round) {
    return Has(in_round_, id) && round == round_ && (state_ == State::kRunning || state_ == State::kDraining);
  };
  const auto failed = [this](const NodeId& id, const Failure& failure) {
    failed_hosts_[host_of_[id]] |= failure.origin == FailureOrigin::kOwn;
  };
  // In a round that did not fail, a worker that has parked has not failed.
  const auto counts = [this](const Failure& failure) { return failed_ || !failure.parked; };
  if (const auto* e = std::get_if<NodeHeard>(&event)) {
    if (e->progress && e->progress->step && speaks(e->node, e->progress->round)) step(*e->progress->step);
  } else if (const auto* e = std::get_if<WorkersFailed>(&event)) {
    if (!speaks(e->node, e->round)) return;
    if (e->failure.step) step(*e->failure.step);
    const bool stopped = e->failure.parked && notices_.round_has_notice();
    if ((state_ != State::kRunning || stopped) && !counts(e->failure)) return;
    consequences_only_ = consequences_only_ && e->failure.origin == FailureOrigin::kFollowsAnother;
    early_ = early_ || (!e->failure.step && e->failure.uptime && *e->failure.uptime < policy_.min_uptime);
    if (state_ == State::kRunning) failed_ = true;
    told_[e->node] = 1;
    failed(e->node, e->failure);
  } else if (const auto* e = std::get_if<NodeReady>(&event)) {
    if (!speaks(e->node, e->round)) return;
    if (e->step) step(*e->step);
    const auto told = std::count_if(e->failures.begin(), e->failures.end(), counts);
    if (told > 0) told_[e->node] = static_cast<int>(told);
    for (const Failure& failure : e->failures) {
      if (failure.step) step(*failure.step);
      if (!counts(failure)) continue;
      consequences_only_ = consequences_only_ && failure.origin == FailureOrigin::kFollowsAnother;
      failed(e->node, failure);
      early_ = early_ || (!failure.step && failure.uptime && *failure.uptime < policy_.min_uptime);
    }
  } else if (const auto* e = std::get_if<WorkersSucceeded>(&event)) {
    if (!speaks(e->node, e->round)) return;
    succeeded_ = true;
    notices_.Succeeded(e->finished);
  } else if (const auto* e = std::get_if<SnapshotTaken>(&event)) {
    if (!speaks(e->node, e->round)) return;
    step(e->step);
    if (asked_at_) snapshot_ = true;
    notices_.SnapshotTaken(now_);
  } else if (const auto* e = std::get_if<DrainRequested>(&event)) {
    if (Has(members_, e->node)) to_be_drained_.insert(e->node);
  } else if (const auto* e = std::get_if<NoticeGiven>(&event)) {
    const bool active = state_ == State::kRunning || state_ == State::kDraining;
    notices_.Given(*e,
                   {.member = Has(members_, e->node) && !Has(lost_nodes_, e->node),
                    .in_round = active && Has(in_round_, e->node),
                    .has_workers = Has(working_, e->node),
                    .round_active = active},
                   now_);
  } else if (const auto* e = std::get_if<CloseRequested>(&event)) {
    if (!close_requested_) close_requested_ = e->outcome;
  }
  const auto gone = [this](const NodeId& id) {
    if (Has(working_, id)) lost_ = true;
    if (machine_->membership().Find(id) == nullptr) members_.erase(id);
  };
  const auto leaves = [this, &gone](const NodeId& id) {
    gone(id);
    if (Has(unleased_, id)) host_leaves_ = true;
  };
  if (const auto* e = std::get_if<NodeJoined>(&event)) {
    host_of_[e->info.id] = e->info.host;
    if (!e->info.leased) unleased_.insert(e->info.id);
    notices_.Joined(e->info);
    if (e->info.last && rounds_sealed_ == 0) NoteReturn(e->info);
  }
  if (const auto* e = std::get_if<NodeLeaving>(&event)) leaves(e->node);
  if (const auto* e = std::get_if<NodeLeft>(&event)) {
    leaves(e->node);
    LeaveElectorate(e->node);
  }
  if (const auto* e = std::get_if<NodeLost>(&event)) gone(e->node);
  if (const auto* e = std::get_if<NodeGone>(&event)) gone(e->node);
}

// If the running round ends in this step, checks the reason. Otherwise checks how long the round has waited
// for a snapshot.
void RoundRules::CheckEnd(const RoundEvent& event, const RoundEffects& effects) {
  const bool asked = std::any_of(effects.begin(), effects.end(), [](const RoundEffect& e) {
    const auto* order = std::get_if<TakeSnapshot>(&e);
    return order != nullptr && (!order->left || order->stop_within);
  });
  if (asked && !notices_.asked_to_stop()) {
    asked_at_ = waits_since_ = now_;
    snapshot_ = false;
    ++snapshots_waited_for_;
  }
  std::set<NodeId> dismissed;
  for (const RoundEffect& effect : effects) {
    const auto* e = std::get_if<Dismiss>(&effect);
    if (e != nullptr && (e->reason == Dismissal::kDrained || e->reason == Dismissal::kPreempted))
      dismissed.insert(e->node);
  }
  for (const NodeId& id : working_) {
    const bool gone = machine_->membership().Find(id) == nullptr && machine_->state() != State::kClosed;
    if (gone && !Has(dismissed, id)) lost_ = true;
  }
  for (const RoundEffect& effect : effects) {
    const auto* note = std::get_if<ddprun::Note>(&effect);
    hands_over_ = hands_over_ || (note != nullptr && std::holds_alternative<note::HandingOver>(*note));
  }
  if (state_ != State::kRunning) return;
  const bool over = machine_->state() == State::kDraining || machine_->round() != round_;
  if (!over) {
    if (machine_->state() == State::kRunning) notices_.CheckRunning(*machine_, now_);
    if (machine_->state() != State::kRunning || !MustEnd() || notices_.round_has_notice()) {
      waits_since_.reset();
    } else if (waits_since_ && now_ >= *waits_since_ + policy_.snapshot_timeout) {
      Broken("a round waits for a snapshot longer than the snapshot timeout");
    }
    return;
  }
  if (failed_ || lost_ || close_requested_ || hands_over_ || std::holds_alternative<WorkersFailed>(event))
    return;
  ++interrupts_;
  if (notices_.round_has_notice()) {
    const auto* e = std::get_if<WorkersSucceeded>(&event);
    const bool all_stopped = std::all_of(working_.begin(), working_.end(),
                                         [e](const NodeId& id) { return e != nullptr && id == e->node; });
    return notices_.CheckEnded(all_stopped, now_);
  }
  const bool for_drain = std::any_of(to_be_drained_.begin(), to_be_drained_.end(),
                                     [this](const NodeId& id) { return Has(in_round_, id); });
  if (!for_drain && policy_.scale_up == ScaleUp::kNever) {
    return Broken("a round was interrupted for newcomers despite --scale-up=never");
  }
  if (!for_drain && succeeded_) Broken("a round was interrupted for newcomers while it was ending");
  if (!for_drain && policy_.scale_up == ScaleUp::kImmediate) return;
  const bool waited = asked_at_ && now_ >= *asked_at_ + policy_.snapshot_timeout;
  if (step_reported_ && !snapshot_ && !waited)
    Broken("a round was interrupted without waiting for a snapshot");
}

void RoundRules::CheckEffects(const RoundEffects& effects, Sealed& sealed) {
  for (const RoundEffect& effect : effects) {
    if (const auto* e = std::get_if<Assign>(&effect)) {
      if (!sealed.emplace(e->node, e->assignment).second) Broken("a node is in a round twice");
      if (Has(owed_, e->node))
        Broken(absl::StrCat(e->node.value(), " got a round before the report on the last round"));
    } else if (const auto* e = std::get_if<TellReport>(&effect)) {
      ++reports_;
      owed_.erase(e->node);
      CheckReport(*e);
    } else if (const auto* e = std::get_if<TellWaiting>(&effect)) {
      const bool draining = machine_->state() == State::kDraining;
      if (!draining && Has(owed_, e->node))
        Broken(absl::StrCat(e->node.value(), " waits without having received the report"));
    } else if (const auto* e = std::get_if<Dismiss>(&effect)) {
      CheckDismissal(*e);
    } else if (const auto* note = std::get_if<ddprun::Note>(&effect)) {
      if (const auto* e = std::get_if<note::HostExcluded>(note)) CheckNewlyExcluded(*e);
      if (const auto* e = std::get_if<NodeMissed>(note); e != nullptr && !notices_.IsNoticed(e->node.id))
        ++may_be_cause_[host_of_[e->node.id]];
    }
    const bool harmless = std::holds_alternative<Dismiss>(effect) || std::holds_alternative<Refuse>(effect);
    if (state_ == State::kClosed && !harmless) Broken("a closed job had an effect other than an answer");
  }
}

void RoundRules::CheckNewlyExcluded(const note::HostExcluded& e) {
  if (policy_.exclude_after == 0) Broken(absl::StrCat(e.host, " is excluded although exclusion is off"));
  if (!excluded_hosts_.insert(e.host).second) Broken(absl::StrCat(e.host, " is excluded twice"));
  newly_excluded_.insert(e.host);
}

void RoundRules::CheckBlame(bool round_is_over) {
  if (round_is_over && failed_ && !close_requested_ && !notices_.round_has_notice()) {
    for (const auto& [host, own] : failed_hosts_) {
      if (!own) continue;
      ++may_be_cause_[host];
      if (failed_hosts_.size() == 1) ++causes_alone_[host];
    }
  }
  for (const std::string& host : newly_excluded_) {
    if (may_be_cause_[host] < policy_.exclude_after) {
      Broken(absl::StrCat(host, " is excluded after ", may_be_cause_[host], " of ", policy_.exclude_after,
                          " failures"));
    }
  }
  newly_excluded_.clear();
  for (const auto& [host, rounds] : causes_alone_) {
    if (policy_.exclude_after > 0 && rounds >= policy_.exclude_after && excluded_hosts_.count(host) == 0) {
      Broken(absl::StrCat(host, " is not excluded after ", rounds, " failures"));
    }
  }
}

void RoundRules::CheckReport(const TellReport& e) {
  if (e.report->groups.empty() && e.report->lost_nodes.empty()) Broken("an empty report was sent");
  int told = 0, counted = e.report->more_failures;
  for (const auto& [node, failures] : told_) told += failures;
  for (const JobReport::Group& group : e.report->groups) counted += group.count;
  if (told != counted) {
    Broken(absl::StrCat("a report counts ", counted, " failures, but the nodes reported ", told));
  }
}

void RoundRules::CheckDismissal(const Dismiss& e) {
  const bool failed = failed_ && !notices_.round_has_notice();
  notices_.CheckDismissal(e, now_);
  switch (e.reason) {
    case Dismissal::kSucceeded:
      if (state_ == State::kRunning && Has(in_round_, e.node) && !succeeded_) {
        Broken("a job succeeded although its workers had not");
      }
      break;
    case Dismissal::kFailed:
      if (state_ == State::kClosed) break;
      if (!failed && lossy_rounds_ < LossStreak::kMax) Broken("a job failed without a failure");
      if (failed && restarts_ < policy_.max_restarts && !early_ && !CrashLoop()) {
        Broken(absl::StrCat("a job failed after ", restarts_, " of ", policy_.max_restarts, " restarts"));
      }
      if (Has(owed_, e.node)) Broken(absl::StrCat(e.node.value(), " was dismissed before the report"));
      break;
    case Dismissal::kJoinTimeout:
      if (static_cast<int>(members_.size()) >= Needed() && state_ == State::kGathering) {
        Broken("a node's join timed out although enough nodes had joined");
      }
      break;
    case Dismissal::kDrained:
      ++drained_;
      if (!Has(to_be_drained_, e.node))
        Broken(absl::StrCat(e.node.value(), " was drained without a request"));
      break;
    case Dismissal::kEvicted:
      if (const auto* missed = std::get_if<NodeMissed>(&e.why);
          missed != nullptr && std::holds_alternative<LeaseExpired>(missed->why) && Has(members_, e.node) &&
          facts_.has_workers(e.node)) {
        Broken(absl::StrCat(e.node.value(), " had workers when its lease expired"));
      }
      if (facts_.has_slept())
        Broken(absl::StrCat(e.node.value(), " was evicted because the coordinator was stopped"));
      break;
    case Dismissal::kStopped:
    case Dismissal::kCoordinatorEnded:
      if (close_requested_ != e.reason) Broken("a job was ended without a request");
      break;
    case Dismissal::kMoved:
      if (!facts_.registered || !hands_over_) Broken("the coordinator moved without a reason");
      break;
    case Dismissal::kRejected:
    case Dismissal::kPreempted:
      break;
  }
  const bool closing = e.reason == Dismissal::kSucceeded || e.reason == Dismissal::kFailed ||
                       e.reason == Dismissal::kStopped || e.reason == Dismissal::kCoordinatorEnded;
  const bool preempted = e.reason == Dismissal::kPreempted;
  if (e.reason == Dismissal::kMoved) return;
  if (Has(to_be_drained_, e.node) && !closing && !preempted && e.reason != Dismissal::kDrained &&
      e.reason != Dismissal::kEvicted && e.reason != Dismissal::kRejected) {
    Broken(absl::StrCat(e.node.value(), " was to be drained but was dismissed for another reason"));
  }
  if (e.reason == Dismissal::kDrained || preempted) LeaveElectorate(e.node);
  if (e.reason == Dismissal::kDrained || e.reason == Dismissal::kEvicted || preempted) members_.erase(e.node);
}

bool RoundRules::MustEnd() const {
  for (const NodeId& id : to_be_drained_) {
    if (Has(in_round_, id)) return true;
  }
  int usable = 0;
  for (const auto& [id, member] : machine_->membership().members()) {
    usable += member.phase != Phase::kWaiting || !IsExcluded(id);
  }
  return policy_.scale_up == ScaleUp::kAtSnapshot && !succeeded_ &&
         machine_->membership().in_round() < policy_.max_nodes && usable >= policy_.max_nodes;
}

int RoundRules::Needed() const {
  const int half = (static_cast<int>(electorate_.size() + former_.size()) + 1) / 2;
  return policy_.quorum == Quorum::kMajority ? std::max(policy_.min_nodes, half) : policy_.min_nodes;
}

bool RoundRules::IsExcluded(const NodeId& id) const {
  const Member* member = machine_->membership().Find(id);
  return member != nullptr && excluded_hosts_.count(member->info.host) > 0;
}

bool RoundRules::CrashLoop() const {
  return policy_.max_restarts_without_progress > 0 && furthest_ && !further_ &&
         vain_ >= policy_.max_restarts_without_progress;
}

// Checks that the end of a round is charged as a restart if a failure caused it, and only then.
void RoundRules::CheckCharge(bool sealed) {
  const int charged = machine_->restarts() - restarts_;
  const bool decided = state_ == State::kDraining && machine_->state() != State::kDraining;
  const bool free = !failed_ || (lost_ && consequences_only_) || notices_.round_has_notice();
  if (charged != 0) {
    if (charged != 1 || !decided) Broken("a restart was charged twice, or before its round was over");
    if (!failed_) Broken("a restart was charged without a failure");
    if (notices_.round_has_notice()) Broken("a failure in a round with a notice was charged");
    if (CrashLoop()) Broken("a job continues in a crash loop");
    if (machine_->restarts() > policy_.max_restarts) Broken("a job used more restarts than allowed");
    vain_ = further_ ? 1 : vain_ + 1;
    further_ = false;
    restarts_ = machine_->restarts();
  } else if (decided && !free && !lost_ && machine_->state() != State::kClosed) {
    Broken("a failure was not charged");
  }
  if (decided) lossy_rounds_ = lost_ ? lossy_rounds_ + 1 : 0;
  if (decided && failed_ && !sealed && machine_->state() == State::kRunning)
    Broken("a round runs without having been sealed");
}

void RoundRules::CheckSealed(const Sealed& sealed) {
  ++rounds_sealed_;
  const int n = static_cast<int>(sealed.size());
  if (n < policy_.min_nodes || n > policy_.max_nodes || n % policy_.node_unit != 0) {
    Broken(absl::StrCat("a round has ", n, " nodes, expected ", policy_.min_nodes, " to ", policy_.max_nodes,
                        " in steps of ", policy_.node_unit));
  }
  if (machine_->membership().size() < Needed()) {
    Broken(absl::StrCat("a round is sealed with ", machine_->membership().size(), " nodes but needs ",
                        Needed()));
  }
  CheckExclusion(sealed);
  std::map<int64_t, std::pair<NodeId, Assignment>> by_rank;
  for (const auto& [id, a] : sealed) {
    by_rank[a.group_rank.value()] = {id, a};
    if (Has(to_be_drained_, id))
      Broken(absl::StrCat(id.value(), " got a round although it is to be drained"));
    notices_.CheckSealed(id);
  }
  if (host_leaves_) Broken("a round is sealed although the coordinator is about to exit");
  for (const auto& [id, seat] : seats_) {
    if (facts_.has_workers(id))
      Broken(absl::StrCat("a round is sealed while workers of ", id.value(), " run"));
  }
  electorate_.clear();
  former_.clear();
  for (const auto& [id, a] : sealed) electorate_.insert(id);
  if (static_cast<int>(by_rank.size()) != n || by_rank.rbegin()->first != n - 1) {
    return Broken("group ranks are not 0 to n-1");
  }
  const Assignment& first = by_rank[0].second;
  int64_t next_rank = 0;
  for (const auto& [rank, node] : by_rank) {
    const Assignment& a = node.second;
    if (a.first_rank.value() != next_rank) Broken("ranks are not consecutive");
    next_rank += machine_->membership().Find(node.first)->info.nproc;
    if (a.round != machine_->round() || a.world_size != first.world_size || a.group_world_size != n ||
        a.master_addr != first.master_addr || a.master_port != first.master_port ||
        a.restart_count != machine_->restarts()) {
      Broken("nodes of one round got different assignments");
    }
  }
  if (next_rank != first.world_size) Broken("the world size is not the number of workers");
  CheckOrder(sealed);

  failed_ = lost_ = early_ = step_reported_ = succeeded_ = snapshot_ = false;
  consequences_only_ = true;
  asked_at_.reset();
  waits_since_.reset();
  notices_.Sealed();
  owed_.clear();
  told_.clear();
  failed_hosts_.clear();
  for (const auto& [id, a] : sealed) seats_[id] = {a.round, a.group_rank.value()};
}

// Checks that excluded hosts are in a round only if there are too few other hosts, and that the round leaves
// out no node that it could include.
void RoundRules::CheckExclusion(const Sealed& sealed) {
  int others = 0, excluded_in = 0, others_out = 0, out = 0;
  for (const auto& [id, member] : machine_->membership().members()) {
    const bool in = sealed.count(id) > 0, excluded = IsExcluded(id);
    others += !excluded;
    excluded_in += in && excluded;
    others_out += !in && !excluded;
    out += !in;
  }
  const bool enough = others / policy_.node_unit * policy_.node_unit >= policy_.min_nodes;
  if (enough && excluded_in > 0) Broken("a round includes an excluded host that it does not need");
  const int could_be_in = enough ? others_out : out;
  if (static_cast<int>(sealed.size()) + policy_.node_unit <= policy_.max_nodes &&
      could_be_in >= policy_.node_unit) {
    Broken("a round leaves out nodes that it could include");
  }
}

void RoundRules::CheckOrder(const Sealed& sealed) {
  bool survivor_left_out = false, newcomer_in = false;
  std::vector<std::pair<int64_t, int64_t>> order;  // old and new group rank of each node of the last round
  for (const auto& [id, member] : machine_->membership().members()) {
    const auto seat = seats_.find(id);
    const bool survivor = seat != seats_.end() && seat->second.round == round_;
    const auto now = sealed.find(id);
    survivor_left_out = survivor_left_out || (survivor && now == sealed.end() && !IsExcluded(id));
    newcomer_in = newcomer_in || (!survivor && seat == seats_.end() && now != sealed.end());
    if (survivor && now != sealed.end())
      order.emplace_back(seat->second.group_rank, now->second.group_rank.value());
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i].second < order[i - 1].second) return Broken("survivors changed their order");
  }
  if (survivor_left_out && newcomer_in) Broken("a newcomer took the place of a survivor");
}

void RoundRules::CheckLeases() {
  if (const auto end = machine_->membership().next_lease_end(); end && *end <= now_) {
    Broken("a node is a member although its lease has expired");
  }
  // After a failure or a loss, members of the draining round must get the report before any other message.
  const bool draining = machine_->state() == State::kDraining;
  if (!draining || (!failed_ && !lost_)) return;
  for (const auto& [id, member] : machine_->membership().members()) {
    if (const auto seat = seats_.find(id); seat != seats_.end() && seat->second.round == round_)
      owed_.insert(id);
  }
}

}  // namespace ddprun::sim
