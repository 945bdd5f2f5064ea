// One run of `train`, from checked options to the last line.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "examples/train/options.h"
#include "worker_sdk/context.h"

namespace ddprun::train {

// Trains up to options.steps, resuming from the newest snapshot. Rank 0 writes progress to `out`, flushed
// after each line, and warnings to `remarks`; other ranks write nothing.
//   REQUIRES: ValidateForWorld(options, context.world_size()).ok()
//   Errors: before training: the text, the snapshots or the metrics file cannot be used, or the ranks differ;
//           during training: those of Trainer::Step.
absl::Status Run(const Options& options, Context& context, std::ostream& out, std::ostream& remarks);

}  // namespace ddprun::train
