// Invariants of Admission::kExpected, checked after each step of a RoundMachine. A part of RoundRules.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/job_rules.h"
#include "rendezvous/core/round_events.h"
#include "rendezvous/core/round_machine.h"

namespace ddprun::sim {

// - No node waits if the waiting nodes, and the expected hosts whose node may still come, are too few for a round.
// - No node is dismissed for this reason if they are enough.
// The node of a host may not come if it has left, was drained or pre-empted for good, has waited in vain, or its agent has
// exited.
class AdmissionRules {
 public:
  using Broken = std::function<void(const std::string& rule)>;

  AdmissionRules(Admission admission, Broken broken);

  // The hosts that an earlier coordinator expected, except those that it has taken out.
  void Expect(const std::set<std::string>& hosts) { expected_ = hosts; }
  // An event, before it changes the membership.
  void Note(const RoundEvent& event, const std::set<NodeId>& members);
  // After the step.
  //   needed: number of nodes that a round needs.
  void Check(const RoundEffects& effects, const RoundMachine& machine, int needed);

 private:
  const Admission admission_;
  const Broken broken_;
  std::set<std::string> expected_;
  std::map<NodeId, std::string> host_of_;
  std::set<NodeId> returning_;  // nodes whose notice says that they return
  std::set<NodeId> exited_;     // in this step
  std::set<std::string> done_;  // hosts whose node may not come
};

}  // namespace ddprun::sim
