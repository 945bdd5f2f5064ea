#include "tests/sim/world/sim_voters.h"

#include <algorithm>

namespace ddprun::sim {

void SimVoters::Chosen(const VoterSet& voters) {
  if (voters.number <= chosen_.number) return;
  changes_ += chosen_.number > 0;
  chosen_ = voters;
  std::erase_if(proposed_, [&](const VoterSet& set) { return set.number <= chosen_.number; });
}

void SimVoters::Proposed(const VoterSet& voters) {
  if (voters.number <= chosen_.number) return;
  if (std::find(proposed_.begin(), proposed_.end(), voters) == proposed_.end()) proposed_.push_back(voters);
}

bool SimVoters::Lives(const VoterSet& voters) const {
  std::set<std::string> ids;
  for (const Voter& voter : AllVoters(voters)) {
    if (alive_(voter.id)) ids.insert(voter.id);
  }
  return IsQuorum(voters, ids);
}

bool SimVoters::QuorumLives() const {
  return Lives(chosen_) &&
         std::all_of(proposed_.begin(), proposed_.end(), [this](const VoterSet& set) { return Lives(set); });
}

}  // namespace ddprun::sim
