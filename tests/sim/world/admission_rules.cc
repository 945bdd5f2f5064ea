#include "tests/sim/world/admission_rules.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {

AdmissionRules::AdmissionRules(Admission admission, Broken broken)
    : admission_(admission), broken_(std::move(broken)) {}

void AdmissionRules::Note(const RoundEvent& event, const std::set<NodeId>& members) {
  exited_.clear();
  if (const auto* e = std::get_if<NodeJoined>(&event)) {
    host_of_[e->info.id] = e->info.host;
    if (expected_.empty()) expected_.insert(e->expected_hosts.begin(), e->expected_hosts.end());
  } else if (const auto* e = std::get_if<NodeLeft>(&event)) {
    if (members.count(e->node) > 0) exited_.insert(e->node);
  } else if (const auto* e = std::get_if<NodeGone>(&event)) {
    if (members.count(e->node) > 0) exited_.insert(e->node);
  } else if (const auto* e = std::get_if<NoticeGiven>(&event)) {
    if (e->back_in) returning_.insert(e->node);
  }
}

void AdmissionRules::Check(const RoundEffects& effects, const RoundMachine& machine, int needed) {
  if (admission_ != Admission::kExpected || expected_.empty()) return;
  const TooFewLeft* too_few = nullptr;
  for (const RoundEffect& effect : effects) {
    const auto* e = std::get_if<Dismiss>(&effect);
    if (e == nullptr) continue;
    const bool for_good = e->reason == Dismissal::kJoinTimeout || e->reason == Dismissal::kDrained ||
                          (e->reason == Dismissal::kPreempted && returning_.count(e->node) == 0);
    if (for_good) exited_.insert(e->node);
    if (const auto* why = std::get_if<TooFewLeft>(&e->why)) too_few = why;
  }
  std::set<std::string> present;
  int waiting = 0;
  for (const auto& [id, member] : machine.membership().members()) {
    if (member.phase != Phase::kLost) present.insert(member.info.host);
    waiting += member.phase == Phase::kWaiting;
  }
  for (const NodeId& id : exited_) {
    if (present.count(host_of_[id]) == 0) done_.insert(host_of_[id]);
  }
  int can_come = 0;
  for (const std::string& host : expected_) can_come += present.count(host) == 0 && done_.count(host) == 0;
  if (too_few != nullptr && too_few->nodes + can_come >= needed) {
    broken_(absl::StrCat("nodes are dismissed although ", too_few->nodes, " wait and ", can_come,
                         " can come, and ", needed, " are enough"));
  }
  if (machine.state() == RoundMachine::State::kGathering && waiting > 0 && waiting + can_come < needed) {
    broken_(
        absl::StrCat(waiting, " nodes wait in vain: ", can_come, " can come, and ", needed, " are needed"));
  }
}

}  // namespace ddprun::sim
