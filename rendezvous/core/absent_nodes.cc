#include "rendezvous/core/absent_nodes.h"

#include <algorithm>
#include <utility>

namespace ddprun {

void AbsentNodes::Expect(const std::vector<std::string>& hosts) {
  if (told_ || hosts.empty()) return;
  told_ = true;
  expected_.insert(hosts.begin(), hosts.end());
}

void AbsentNodes::Came(const std::string& host) {
  ++present_[host];
  // Equal keys are in the order in which they were put in.
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
