// The loss curve as a picture.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "examples/train/metrics.h"

namespace ddprun::train {

// An SVG of loss by step. Each new run of the workers (another restart or round, or repeated steps) starts a
// new line and is marked at its start.
std::string DrawLossChart(absl::Span<const StepMetrics> metrics);

}  // namespace ddprun::train
