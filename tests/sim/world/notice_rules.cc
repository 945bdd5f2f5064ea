#include "tests/sim/world/notice_rules.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

// Time that workers have to exit after the snapshot.
constexpr Duration kExitTime = seconds(5);

}  // namespace

NoticeRules::NoticeRules(Duration join_timeout, Broken broken)
    : join_timeout_(join_timeout), broken_(std::move(broken)) {}

void NoticeRules::Joined(const NodeInfo& info) {
  stop_timeouts_[info.id] = info.stop_timeout;
  if (info.hosts) hosting_.insert(info.id);
}

void NoticeRules::Given(const NoticeGiven& e, const Before& before, TimePoint now) {
  if (!before.member) return;
  ++given_;
  const TimePoint end = now + e.left;
  Notice notice{.stop_at = end - std::min(stop_timeouts_[e.node], e.left / 3), .end = end};
  if (e.back_in) notice.back_at = now + *e.back_in;
  const auto [it, first] = noticed_.emplace(e.node, notice);
  const bool earlier = first || end < it->second.end;
  if (earlier) {
    it->second.end = end;
    it->second.stop_at = std::min(it->second.stop_at, notice.stop_at);
  }
  if (notice.back_at) it->second.back_at = notice.back_at;
  const bool hosts = hosting_.count(e.node) > 0;
  host_noticed_ = host_noticed_ || hosts;
  if (before.in_round || (hosts && before.round_active)) round_has_notice_ = true;
  if (before.round_active) stop_by_ = std::min(stop_by_.value_or(it->second.stop_at), it->second.stop_at);
  if (earlier && before.has_workers) to_be_told_ = e.node;
}

void NoticeRules::SnapshotTaken(TimePoint now) {
  if (asked_ && !snapshot_at_) snapshot_at_ = now;
}

std::optional<TimePoint> NoticeRules::StopAt(const Membership& membership) const {
  std::optional<TimePoint> first;
  for (const auto& [id, notice] : noticed_) {
    if (membership.Find(id) != nullptr) first = std::min(first.value_or(notice.stop_at), notice.stop_at);
  }
  return first;
}

void NoticeRules::CheckRunning(const RoundMachine& machine, TimePoint now) {
  const std::optional<TimePoint> stop_at = StopAt(machine.membership());
  if (!stop_at) return;
  if (now >= *stop_at) {
    broken_("a round runs on after the time at which a node with a notice must stop its workers");
  } else if (const auto next = machine.NextDeadline(); !next || *next > *stop_at) {
    broken_("a round with a notice has no deadline, or a later one than the node with the notice allows");
  }
}

void NoticeRules::CheckEnded(bool all_stopped, TimePoint now) {
  const bool due = stop_by_ && now >= *stop_by_;
  const bool saved = snapshot_at_ && now >= *snapshot_at_ + kExitTime;
  if (!all_stopped && !due && !saved)
    broken_("a round with a notice was ended although its workers had time to stop");
}

void NoticeRules::CheckEffects(const RoundEffects& effects, const RoundMachine& machine) {
  bool told = false;
  for (const RoundEffect& effect : effects) {
    const auto* e = std::get_if<TakeSnapshot>(&effect);
    if (e == nullptr) continue;
    asked_ = asked_ || e->stop_within;
    told = told || (e->node == to_be_told_ && e->left);
  }
  const std::optional<NodeId> node = std::exchange(to_be_told_, std::nullopt);
  if (!node || told) return;
  const Member* member = machine.membership().Find(*node);
  if (member != nullptr && member->phase != Phase::kLost)
    broken_(absl::StrCat(node->value(), " is not told how much time is left"));
}

void NoticeRules::CheckDismissal(const Dismiss& e, TimePoint now) {
  if (e.reason == Dismissal::kPreempted) {
    ++preempted_;
    if (!IsNoticed(e.node) && !host_noticed_)
      broken_(absl::StrCat(e.node.value(), " was dismissed as pre-empted without a notice"));
  } else if (e.reason == Dismissal::kSucceeded) {
    if (round_has_notice_ && unfinished_)
      broken_("a job succeeded although its workers had only stopped because of a notice");
  } else if (e.reason == Dismissal::kJoinTimeout) {
    // If too few would be left even with the nodes that return, no node waits for them; AdmissionRules checks that.
    const bool in_vain = std::holds_alternative<TooFewLeft>(e.why);
    if (!in_vain && back_at_ && now < *back_at_ + join_timeout_)
      broken_("a node's join timed out although a node that returns has not had the join timeout");
  }
}

void NoticeRules::CheckSealed(const NodeId& node) {
  if (IsNoticed(node)) broken_(absl::StrCat(node.value(), " got a round although it is to go away"));
  if (host_noticed_) broken_("a round is sealed although the coordinator's host is to go away");
}

void NoticeRules::Forget(const Membership& membership) {
  std::erase_if(noticed_, [&](const auto& entry) {
    const Member* member = membership.Find(entry.first);
    if (member != nullptr && member->phase != Phase::kLost) return false;
    if (const auto& back_at = entry.second.back_at)
      back_at_ = std::max(back_at_.value_or(*back_at), *back_at);
    return true;
  });
}

void NoticeRules::Sealed() {
  round_has_notice_ = asked_ = unfinished_ = false;
  snapshot_at_.reset();
  stop_by_.reset();
  back_at_.reset();
}

}  // namespace ddprun::sim
