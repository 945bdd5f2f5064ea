// Makes a failing script smaller.
#pragma once

#include <functional>

#include "tests/sim/script.h"

namespace ddprun::sim {

// Leaves out faults as long as `fails` says that what is left still does: halves first, then ever smaller
// parts, down to single ones, until none can be spared.
//   REQUIRES: fails(script).
Script Minimized(Script script, const std::function<bool(const Script&)>& fails);

}  // namespace ddprun::sim
