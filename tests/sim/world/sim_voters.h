// The voters of a simulated job.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/voters/voter_set.h"

namespace ddprun::sim {

// Knows which processes have to live so that the register can be read and written.
class SimVoters {
 public:
  // `alive`: whether the process with this id lives.
  explicit SimVoters(std::function<bool(const std::string& id)> alive) : alive_(std::move(alive)) {}

  // A process knows that these voters were chosen.
  void Chosen(const VoterSet& voters);
  // A process tries to write a record with these voters, which may be chosen without anybody knowing it.
  void Proposed(const VoterSet& voters);

  // Whether the job has been founded.
  bool known() const { return chosen_.number > 0; }
  // Whether a quorum of the chosen voters lives, and one of each set that may have been chosen since.
  bool QuorumLives() const;
  int64_t changes() const { return changes_; }

 private:
  bool Lives(const VoterSet& voters) const;

  const std::function<bool(const std::string& id)> alive_;
  VoterSet chosen_;                 // the newest ones
  std::vector<VoterSet> proposed_;  // newer ones, each once
  int64_t changes_ = 0;
};

}  // namespace ddprun::sim
