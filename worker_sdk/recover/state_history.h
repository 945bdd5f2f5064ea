// Up to which round the state of a process counts.
#pragma once

#include <cstdint>

namespace ddprun {

//   Threads: one caller at a time.
class StateHistory {
 public:
  // Recover has succeeded in `round`.
  void Recovered(int64_t round) { recovered_ = round; }
  // The process leaves `round`, in which it was a member.
  void Leave(int64_t round) {
    const bool counts = previous_ >= 0 && previous_ == round - 1;
    if (counts || recovered_ == round) previous_ = round;
  }
  // See Standing::previous_round.
  [[nodiscard]] int64_t previous_round() const { return previous_; }

 private:
  int64_t previous_ = -1;
  int64_t recovered_ = -1;
};

}  // namespace ddprun
