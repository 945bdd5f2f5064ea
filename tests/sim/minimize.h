// Minimizes a failing script.
#pragma once

#include <functional>

#include "tests/sim/script.h"

namespace ddprun::sim {

// Removes faults while `fails` still returns true: first halves, then smaller parts, then single faults. In
// the result no single fault can be removed.
//   REQUIRES: fails(script).
Script Minimized(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace ddprun::sim
