// Determines which divisions of a batch among workers leave the sums of a training step bit-identical.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun::train {

// Returns true if and only if `world_size` workers, each with its span of the batch (SpanOfRank), add the
// same numbers in the same order as a single worker. That is: the tree over the workers, with the trees over
// their spans as leaves, equals the tree over the batch. The result is always true if all workers have the
// same power-of-two number of sequences. docs/decisions/0003-reduction-order.md has the consequences.
//   REQUIRES: global_batch >= world_size >= 1.
[[nodiscard]] bool SumsAsOneWorker(int64_t global_batch, int64_t world_size);

// Describes the number of sequences per worker: "6 each", or "4 or 3".
[[nodiscard]] std::string SharesInWords(int64_t global_batch, int64_t world_size);

}  // namespace ddprun::train
