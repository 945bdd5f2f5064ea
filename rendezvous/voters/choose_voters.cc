#include "rendezvous/voters/choose_voters.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/voters/proposer.h"

namespace ddprun {

std::vector<std::string> ChooseVoters(std::vector<VoterCandidate> nodes, const VoterSet& voters,
                                      const std::vector<std::string>& witnesses) {
  constexpr size_t kEnough = 3;  // any one of them may be lost
  constexpr size_t kMost = 2 * Proposer::kMaxVoters;
  const auto votes = [&](const VoterCandidate& node) {
    return std::any_of(voters.now.voters.begin(), voters.now.voters.end(),
                       [&](const Voter& voter) { return voter.address == node.address; });
  };
  std::erase_if(nodes, [&](const VoterCandidate& node) { return !node.in_round && !votes(node); });
  std::sort(nodes.begin(), nodes.end(), [&](const VoterCandidate& a, const VoterCandidate& b) {
    return std::tuple(!a.leads, !votes(a), !a.in_round, a.rank) <
           std::tuple(!b.leads, !votes(b), !b.in_round, b.rank);
  });
  const bool one_host = std::all_of(nodes.begin(), nodes.end(), [&](const VoterCandidate& node) {
    return node.host == nodes.front().host;
  });
  std::set<std::string> hosts;
  std::vector<std::string> chosen;
  for (VoterCandidate& node : nodes) {
    if (chosen.size() == kMost) break;
    if (one_host || hosts.insert(node.host).second) chosen.push_back(std::move(node.address));
  }
  if (chosen.empty()) return chosen;
  for (size_t i = 0; i < witnesses.size() && chosen.size() < kEnough; ++i) chosen.push_back(witnesses[i]);
  return chosen;
}

}  // namespace ddprun
