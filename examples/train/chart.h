// Draws the loss curve.
#pragma once

#include <span>
#include <string>

#include "examples/train/metrics.h"

namespace ddprun::train {

// Returns an SVG of loss by step. Each run of the workers has a separate line, whose start is marked. A run
// ends when the restart count or the round changes, or when a step is repeated.
std::string DrawLossChart(std::span<const StepMetrics> metrics);

}  // namespace ddprun::train
