// What the leader of a job tells the job's voters about the nodes of the job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/voters/voter_register.h"

namespace ddprun {

// Connects the coordinator of a process and its register of the voters.
//   Threads: that of both.
class VoterChoice {
 public:
  // coordinator: must outlive this object.
  //   own_address: HOST:PORT of this process, as a voter.
  VoterChoice(const Coordinator* coordinator, std::string own_address)
      : coordinator_(*coordinator), own_address_(std::move(own_address)) {}

  // Says which processes should be the voters from now on. Called before each write of a process that leads.
  void Prepare(VoterRegister& voters, bool hands_over);
  // For VoterRegister::Parts::leading.
  //   left: of the lead; zero: this process does not lead.
  VoterRegister::Parts::Leading Leading(Duration left) const;

 private:
  const Coordinator& coordinator_;
  const std::string own_address_;
  std::vector<std::string> candidates_;  // the last ones
};

}  // namespace ddprun
