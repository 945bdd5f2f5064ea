// One run of `train`, with options that have been validated.
#pragma once

#include <ostream>

#include "ddprun/context.h"
#include "ddprun/status.h"
#include "examples/train/options.h"

namespace ddprun::train {

// Trains up to options.steps, resuming from the newest snapshot. Rank 0 writes progress to `out`, flushed
// after each line, and warnings to `remarks`; other ranks write nothing.
//   REQUIRES: ValidateForWorld(options, context.world_size()).ok()
//   Errors: before training: the text, the snapshots or the metrics file cannot be used, or the ranks do not
//           agree; during training: those of Trainer::Step.
Status Run(const Options& options, Context& context, std::ostream& out, std::ostream& remarks);

}  // namespace ddprun::train
