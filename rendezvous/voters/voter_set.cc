#include "rendezvous/voters/voter_set.h"

#include <algorithm>
#include <cstddef>

namespace ddprun {

bool IsQuorum(const VoterGroup& group, const std::set<std::string>& ids) {
  const auto count = static_cast<size_t>(std::count_if(
      group.voters.begin(), group.voters.end(), [&](const Voter& voter) { return ids.contains(voter.id); }));
  if (2 * count == group.voters.size()) return count > 0 && ids.contains(group.tie_breaker);
  return 2 * count > group.voters.size();
}

bool IsQuorum(const VoterSet& set, const std::set<std::string>& ids) {
  return IsQuorum(set.now, ids) && (!set.before || IsQuorum(*set.before, ids));
}

VoterSet CertainlyChosen(const VoterSet& set) {
  return set.before ? VoterSet{.number = set.number - 1, .now = *set.before} : set;
}

std::vector<Voter> AllVoters(const VoterSet& set) {
  std::vector<Voter> all = set.now.voters;
  if (!set.before) return all;
  for (const Voter& voter : set.before->voters) {
    if (std::find(all.begin(), all.end(), voter) == all.end()) all.push_back(voter);
  }
  return all;
}

}  // namespace ddprun
