// What a simulated agent sees of workers that stand still.

#include <utility>

#include "tests/sim/world/sim_agent.h"

namespace ddprun::sim {

void SimAgent::Reported(Round round, int64_t step) {
  for (int i = 0; i < place_.nproc; ++i) driver_.Reported(round, LocalRank(i), step, WorkerPhase::kTraining);
}

// The answer comes in time, or too late, or never.
void SimAgent::CollectEvidence(EvidenceHandler done) {
  if (evidence_random_.Chance(0.05)) return;
  const bool late = evidence_random_.Chance(0.1);
  const Duration takes = late ? evidence_random_.Between(seconds(4), seconds(12))
                              : evidence_random_.Between(milliseconds(1), milliseconds(2500));
  place_.host->After(takes, [this, done = std::move(done)] {
    InAgent([this, done] {
      if (warden_.workers() != nullptr) done(warden_.workers()->Evidence(), {});
    });
  });
}

}  // namespace ddprun::sim
