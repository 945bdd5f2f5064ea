// Which divisions of a batch among workers leave the sums of a training step as they are, bit for bit.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun::train {

// True exactly when `world_size` workers, each with its span of the batch (SpanOfRank), add the same numbers
// in the same order as one worker alone: when the tree over the workers, whose leaves are the trees over
// their spans, is the tree over the batch. Always so when all have the same power of two of sequences.
// docs/decisions/0003-reduction-order.md says what follows.
//   REQUIRES: global_batch >= world_size >= 1.
[[nodiscard]] bool SumsAsOneWorker(int64_t global_batch, int64_t world_size);

// "6 each", or "4 or 3".
[[nodiscard]] std::string SharesInWords(int64_t global_batch, int64_t world_size);

}  // namespace ddprun::train
