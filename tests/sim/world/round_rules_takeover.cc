// RoundRules of a machine that continues the job of an earlier coordinator.

#include <utility>

#include "tests/sim/world/round_rules.h"

namespace ddprun::sim {

RoundRules::RoundRules(Trace* trace, const Charter& charter, Takeover how, NodeFacts facts)
    : RoundRules(trace, charter.rules, std::move(facts)) {
  const FurthestStep::Parts furthest = charter.furthest.parts();
  round_ = charter.round;
  restarts_ = charter.restarts;
  furthest_ = furthest.step;
  further_ = furthest.further;
  vain_ = furthest.restarts;
  lossy_rounds_ = charter.losses.count();
  if (charter.round && how != Takeover::kHandedOver) ++lossy_rounds_;
  former_ = charter.electorate;
  may_be_cause_ = charter.hosts.all();
  for (const auto& [host, failures] : may_be_cause_) {
    if (policy_.exclude_after > 0 && failures >= policy_.exclude_after) excluded_hosts_.insert(host);
  }
  if (charter.expected_hosts) admission_.Expect(*charter.expected_hosts);
  if (!charter.end) return;
  state_ = RoundMachine::State::kClosed;
  close_requested_ = charter.end->outcome;
}

void RoundRules::NoteReturn(const NodeInfo& info) {
  // The machine trusts nodes only as long as it waits for the members of the last round.
  const std::optional<int64_t> furthest = machine_->furthest_step();
  if (info.last->step && furthest >= info.last->step && (!furthest_ || *info.last->step > *furthest_)) {
    furthest_ = info.last->step;
    further_ = true;
  }
  const Member* const member = machine_->membership().Find(info.id);
  const bool trusted = member != nullptr && member->round == info.last->round;
  if (trusted) seats_[info.id] = {info.last->round, info.last->rank.value()};
}

void RoundRules::LeaveElectorate(const NodeId& id) {
  if (electorate_.erase(id) > 0) return;
  const auto seat = seats_.find(id);
  if (seat == seats_.end() || seat->second.round != round_) return;
  if (const auto host = former_.find(host_of_[id]); host != former_.end()) former_.erase(host);
}

}  // namespace ddprun::sim
