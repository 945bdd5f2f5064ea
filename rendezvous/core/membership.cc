#include "rendezvous/core/membership.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ddprun {

const Member& Membership::At(const NodeId& id) const {
  const Member* member = Find(id);
  DDPRUN_CHECK(member != nullptr, "node " << id << " is not among the " << size() << " members");
  return *member;
}

Member& Membership::Mutable(const NodeId& id) { return const_cast<Member&>(At(id)); }

Member& Membership::Add(NodeInfo info, TimePoint lease_end, TimePoint join_end) {
  const NodeId id = info.id;
  DDPRUN_CHECK(!members_.contains(id), "node " << id << " is a member already");
  if (info.leased) leases_.emplace(lease_end, id);
  joins_.emplace(join_end, id);
  if (info.requested_rank) requested_[*info.requested_rank] = id;
  ++counts_[static_cast<size_t>(Phase::kWaiting)];
  Member member{.info = std::move(info),
                .phase = Phase::kWaiting,
                .arrival = next_arrival_++,
                .lease_end = lease_end,
                .join_end = join_end};
  return members_.emplace(id, std::move(member)).first->second;
}

void Membership::Remove(const NodeId& id) {
  const Member& member = At(id);
  leases_.erase({member.lease_end, id});
  joins_.erase({member.join_end, id});
  if (member.info.requested_rank) requested_.erase(*member.info.requested_rank);
  --counts_[static_cast<size_t>(member.phase)];
  to_be_drained_.erase(id);
  noticed_.erase(id);
  excluded_.erase(id);
  leaving_.erase(id);
  members_.erase(id);
}

const Member* Membership::Find(const NodeId& id) const {
  const auto it = members_.find(id);
  return it == members_.end() ? nullptr : &it->second;
}

const Member* Membership::FindRequested(int rank) const {
  const auto it = requested_.find(rank);
  return it == requested_.end() ? nullptr : Find(it->second);
}

void Membership::SetPhase(const NodeId& id, Phase phase) {
  Member& member = Mutable(id);
  --counts_[static_cast<size_t>(member.phase)];
  ++counts_[static_cast<size_t>(phase)];
  member.phase = phase;
  if (phase == Phase::kWaiting) {
    joins_.emplace(member.join_end, id);
  } else {
    joins_.erase({member.join_end, id});
  }
}

void Membership::SetPlace(const NodeId& id, Round round, GroupRank rank, Rank first_rank) {
  Member& member = Mutable(id);
  member.round = round;
  member.rank = rank;
  member.first_rank = first_rank;
}

void Membership::SetProgress(const NodeId& id, Progress progress) {
  Mutable(id).progress = std::move(progress);
}

void Membership::SetDrain(const NodeId& id, std::string why) {
  Mutable(id).drain = std::move(why);
  to_be_drained_.insert(id);
}

void Membership::SetNotice(const NodeId& id, Notice notice) {
  Mutable(id).notice = std::move(notice);
  noticed_.insert(id);
}

void Membership::SetLeaving(const NodeId& id) {
  Mutable(id).leaving = true;
  leaving_.insert(id);
}

void Membership::SetExcluded(const std::string& host) {
  for (auto& [id, member] : members_) {
    if (member.info.host != host) continue;
    member.excluded = true;
    excluded_.insert(id);
  }
}

int Membership::CountWaiting(const std::set<NodeId>& ids) const {
  return static_cast<int>(std::count_if(
      ids.begin(), ids.end(), [this](const NodeId& id) { return At(id).phase == Phase::kWaiting; }));
}
int Membership::excluded_waiting() const { return CountWaiting(excluded_); }
int Membership::leaving_waiting() const { return CountWaiting(leaving_); }

void Membership::SetLost(const NodeId& id) {
  Member& member = Mutable(id);
  if (member.info.requested_rank) requested_.erase(*member.info.requested_rank);
  member.info.requested_rank.reset();
  member.drain.reset();
  to_be_drained_.erase(id);
  member.notice.reset();
  noticed_.erase(id);
  SetPhase(id, Phase::kLost);
}

void Membership::SetStorePort(const NodeId& id, int port) { Mutable(id).info.store_port = port; }

void Membership::SetJoinEnd(const NodeId& id, TimePoint join_end) {
  Member& member = Mutable(id);
  const bool waits = joins_.erase({member.join_end, id}) > 0;
  member.join_end = join_end;
  if (waits) joins_.emplace(join_end, id);
}

void Membership::RenewLease(const NodeId& id, TimePoint lease_end) {
  Member& member = Mutable(id);
  if (!member.info.leased) return;
  leases_.erase({member.lease_end, id});
  member.lease_end = lease_end;
  leases_.emplace(lease_end, id);
}

void Membership::RenewAllLeases(TimePoint lease_end) {
  for (const NodeId& id : ExpiredLeases(lease_end)) RenewLease(id, lease_end);
}

std::optional<TimePoint> Membership::next_lease_end() const { return First(leases_); }
std::optional<TimePoint> Membership::next_join_end() const { return First(joins_); }
std::vector<NodeId> Membership::ExpiredLeases(TimePoint now) const { return Until(leases_, now); }
std::vector<NodeId> Membership::ExpiredJoins(TimePoint now) const { return Until(joins_, now); }

std::optional<TimePoint> Membership::First(const Deadlines& deadlines) {
  if (deadlines.empty()) return std::nullopt;
  return deadlines.begin()->first;
}

std::vector<NodeId> Membership::Until(const Deadlines& deadlines, TimePoint now) {
  std::vector<NodeId> ids;
  for (const auto& [end, id] : deadlines) {
    if (end > now) break;
    ids.push_back(id);
  }
  return ids;
}

void AbsentNodes::Expect(const std::vector<std::string>& hosts) {
  if (has_expected_ || hosts.empty()) return;
  has_expected_ = true;
  expected_.insert(hosts.begin(), hosts.end());
}

void AbsentNodes::Resume(const std::optional<std::set<std::string>>& expected) {
  has_expected_ = expected.has_value();
  if (expected) expected_ = *expected;
}

std::optional<std::set<std::string>> AbsentNodes::Expected() const {
  if (!has_expected_) return std::nullopt;
  return expected_;
}

void AbsentNodes::Came(const std::string& host) {
  ++present_[host];
  // Entries with equal keys are in insertion order, so lower_bound finds the node that was lost first.
  if (const auto it = lost_.lower_bound(host); it != lost_.end() && it->first == host) lost_.erase(it);
}

void AbsentNodes::Went(const std::string& host) {
  const auto it = present_.find(host);
  if (it != present_.end() && --it->second == 0) present_.erase(it);
}

void AbsentNodes::Lost(const std::string& host, MissedReason why, TimePoint now) {
  Went(host);
  lost_.emplace(host, AbsentNode{host, std::move(why), now});
}

void AbsentNodes::TakenOut(const std::string& host) {
  Went(host);
  if (!present_.contains(host)) expected_.erase(host);
}

void AbsentNodes::Exited(const std::string& host) {
  if (const auto it = lost_.find(host); it != lost_.end()) lost_.erase(it);
  if (!present_.contains(host)) expected_.erase(host);
}

std::optional<int> AbsentNodes::CountExpected() const {
  if (!has_expected_) return std::nullopt;
  return static_cast<int>(std::count_if(expected_.begin(), expected_.end(), [this](const std::string& host) {
    return !present_.contains(host);
  }));
}

bool AbsentNodes::AllExpectedPresent() const {
  if (expected_.empty() || present_.size() < expected_.size()) return false;
  return std::all_of(expected_.begin(), expected_.end(),
                     [this](const std::string& host) { return present_.contains(host); });
}

int AbsentNodes::CountMayReturn() const {
  return static_cast<int>(std::count_if(lost_.begin(), lost_.end(), [](const auto& lost) {
    const MissedReason& why = *lost.second.why;
    return !std::holds_alternative<Left>(why) && !std::holds_alternative<JoinTimedOut>(why) &&
           !std::holds_alternative<TooFewLeft>(why);
  }));
}

std::vector<AbsentNode> AbsentNodes::List() const {
  std::vector<AbsentNode> list;
  for (const auto& [host, node] : lost_) list.push_back(node);
  for (const std::string& host : expected_) {
    if (!present_.contains(host) && !lost_.contains(host)) list.push_back({.host = host});
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const AbsentNode& a, const AbsentNode& b) { return a.host < b.host; });
  return list;
}

}  // namespace ddprun
