// The loss curve as a picture.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "examples/train/metrics.h"

namespace ddprun::train {

// An SVG of loss by step. A new run of the workers (another restart or round, or steps done again) begins a
// new line and is marked where it begins.
std::string DrawLossChart(absl::Span<const StepMetrics> metrics);

}  // namespace ddprun::train
