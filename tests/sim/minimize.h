// Minimizes a failing script.
#pragma once

#include <functional>

#include "tests/sim/script.h"

namespace ddprun::sim {

// Removes faults as long as `fails` returns true for the remaining script: first halves of the list, then
// smaller parts, then single faults. `fails` is false for the result without any one of its faults.
//   REQUIRES: fails(script).
Script Minimized(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace ddprun::sim
