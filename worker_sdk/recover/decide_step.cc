#include "worker_sdk/recover/decide_step.h"

#include <algorithm>
#include <string>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Whether `standing` has state that counts in `round`. Rounds are counted from 0: -1 is not the round before round 0.
bool Survives(const Standing& standing, int64_t round) {
  return standing.previous_round >= 0 && standing.previous_round == round - 1 && standing.step >= 0;
}

// The step that a survivor reaches if it applies what it has prepared.
int64_t Reachable(const Standing& standing) { return std::max(standing.step, standing.prepared); }

std::string Describe(size_t rank, const Standing& standing) {
  std::string text = StrCat("rank ", rank, " has step ", standing.step);
  return standing.prepared < 0 ? text + " and has prepared none"
                               : StrCat(text, " and has prepared step ", standing.prepared);
}

Status CannotReconcile(int64_t round, const std::string& why) {
  return DataLossError(
      StrCat("the steps of the survivors of round ", round - 1, " cannot be reconciled: ", why));
}

// REQUIRES: `joiners` is not empty.
int RootFor(const std::vector<int>& joiners, const std::vector<int>& survivors,
            std::span<const Standing> standings) {
  const auto near = std::ranges::find_if(
      survivors, [&](int r) { return standings[r].node == standings[joiners.front()].node; });
  if (near != survivors.end()) return *near;
  return survivors.empty() ? -1 : survivors.front();
}

}  // namespace

StatusOr<Decision> DecideStep(int64_t round, std::span<const Standing> standings) {
  Decision decision;
  std::vector<int> survivors;
  for (size_t r = 0; r < standings.size(); ++r) {
    const Standing& standing = standings[r];
    const bool prepared = standing.prepared >= 0;
    decision.actions.push_back(prepared ? StepAction::kDrop : StepAction::kNothing);
    if (!Survives(standing, round)) {
      decision.joiners.push_back(static_cast<int>(r));
      continue;
    }
    if (prepared && standing.prepared != standing.step + 1) {
      return CannotReconcile(round, Describe(r, standing));
    }
    survivors.push_back(static_cast<int>(r));
  }
  if (!survivors.empty()) {
    const int last = *std::ranges::min_element(survivors, {}, [&](int r) { return Reachable(standings[r]); });
    decision.step = Reachable(standings[last]);
    for (const int r : survivors) {
      if (standings[r].step > decision.step) {
        return CannotReconcile(round, Describe(last, standings[last]) + ", but " + Describe(r, standings[r]));
      }
      // Reachable(r) >= decision.step > step, so this is the step that it has prepared.
      if (standings[r].step < decision.step) decision.actions[r] = StepAction::kApply;
    }
  }
  if (!decision.joiners.empty()) decision.root = RootFor(decision.joiners, survivors, standings);
  return decision;
}

}  // namespace ddprun
