#include "rendezvous/server/voter_choice.h"

#include "net/endpoint.h"
#include "rendezvous/voters/choose_voters.h"

namespace ddprun {

void VoterChoice::Prepare(VoterRegister& voters, bool hands_over) {
  std::vector<VoterCandidate> nodes;
  for (const LedNode& node : coordinator_.LedNodes()) {
    if (node.port == 0) continue;
    nodes.push_back({.host = node.host,
                     .address = node.in_process ? own_address_ : ToString(Endpoint{node.address, node.port}),
                     .rank = static_cast<int>(node.rank.value()),
                     .leads = node.in_process,
                     .in_round = node.in_round});
  }
  // A node that has lost its connection for a moment is not left out if there is no other.
  std::vector<std::string> chosen = ChooseVoters(std::move(nodes), voters.voters(), voters.Witnesses());
  if (!chosen.empty()) candidates_ = std::move(chosen);
  std::vector<std::string> candidates = candidates_;
  if (candidates.empty() && hands_over) {  // no round has started since this process leads
    for (const Voter& voter : voters.voters().now.voters) candidates.push_back(voter.address);
  }
  if (hands_over) std::erase(candidates, own_address_);
  voters.SetCandidates(std::move(candidates));
}

VoterRegister::Parts::Leading VoterChoice::Leading(Duration left) const {
  VoterRegister::Parts::Leading leading{.left = left};
  for (const auto& [address, port] : coordinator_.EndedNodes())
    leading.ended.push_back(ToString(Endpoint{address, port}));
  return leading;
}

}  // namespace ddprun
