// From which step the ranks of a round continue with the memory that survivors of the round before have. Pure.
//
// A step is committed in two phases: each rank prepares it, which means that it has the reduced gradients; a barrier
// follows; then each rank applies it, which cannot fail. So a rank that has committed step s proves that all ranks of the
// round were prepared for s. With p(i) = the step that survivor i reaches if it applies what it has prepared, all ranks
// continue at T = min p(i): no step is lost that any rank has committed, also if that rank is dead; and all survivors can
// reach T, because none has committed a step beyond it. See docs/decisions/0015-in-place-recovery.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddprun/status.h"

namespace ddprun {

// What one rank of the new round contributes to the decision.
struct Standing {
  // The last round up to which its state counts; -1: none. It becomes r when the process leaves round r, if it was r - 1 or
  // if Recover has succeeded in r. So it stays behind if the process was left out of a round, also after it was a member of
  // later rounds that ended before Recover: other ranks may have gone further, and what they had may be lost.
  int64_t previous_round = -1;
  // The optimizer updates that its state contains; -1: it has no state that counts. Not -1 only if all of the state is
  // there: a rank that received a part of a broadcast has step -1.
  int64_t step = -1;
  // The step that it has prepared and not applied, as FinishOptions::step numbers it; -1: none.
  int64_t prepared = -1;
  // Its node: equal numbers mean the same node.
  int64_t node = 0;
};

enum class StepAction : uint8_t {
  kNothing = 0,
  kApply = 1,  // apply the prepared step
  kDrop = 2,   // forget the prepared step
};

struct Decision {
  int64_t step = -1;  // of all ranks, T; -1: no rank has state
  // The rank whose state, after its action, the joiners get: the lowest survivor on the node of the lowest joiner, or
  // else the lowest survivor. -1: there are no joiners, or no survivors.
  int root = -1;
  std::vector<int> joiners;         // ranks, in ascending order; all others are survivors
  std::vector<StepAction> actions;  // by rank; of a joiner never kApply
};

// Decides for round `round`. `standings`: by rank. A rank is a survivor if its state counts up to round - 1, and is
// otherwise a joiner. Equal arguments give equal results, so all ranks get the same decision, or the same error.
//   Repeat: if some ranks have taken their actions, and some joiners have state of step T, when the round ends, the next
//           decision is right, too, whichever of the ranks have died.
//   Errors: kDataLoss: the steps of the survivors cannot be reconciled, which the protocol excludes: a program has counted
//           steps wrongly, or has lost what it had prepared. The message names two of the ranks and their steps, or one
//           rank whose steps contradict each other.
StatusOr<Decision> DecideStep(int64_t round, std::span<const Standing> standings);

}  // namespace ddprun
