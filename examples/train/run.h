// One run of `train`, from checked options to the last line.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "examples/train/options.h"
#include "worker_sdk/context.h"

namespace ddprun::train {

// Trains to options.steps, going on from the newest snapshot. Rank 0 writes progress to `out`, one flushed
// line at a time, and remarks to `remarks`; the others are silent.
//   REQUIRES: ValidateForWorld(options, context.world_size()).ok()
//   Errors: before any training: the text, the snapshots or the metrics file cannot be used, or the ranks
//           differ; then those of Trainer::Step.
absl::Status Run(const Options& options, Context& context, std::ostream& out, std::ostream& remarks);

}  // namespace ddprun::train
