#include "examples/train/batch_shares.h"

#include <bit>

#include "worker_sdk/core/strings.h"
#include "worker_sdk/data/sampler.h"

namespace ddprun::train {
namespace {

// Returns the index at which the tree over lo .. hi-1 splits; see tree_sum.h.
int64_t Middle(int64_t lo, int64_t hi) {
  return lo + static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(hi - lo - 1)));
}

// Returns whether the tree over workers lo .. hi-1 equals the tree over their positions in the batch.
bool IsTreeOfPlaces(int64_t batch, int64_t world, int64_t lo, int64_t hi) {
  if (hi - lo == 1) return true;
  const int64_t middle = Middle(lo, hi);
  const int64_t first = SpanOfRank(batch, lo, world).lo, end = SpanOfRank(batch, hi - 1, world).hi;
  return SpanOfRank(batch, middle, world).lo == Middle(first, end) &&
         IsTreeOfPlaces(batch, world, lo, middle) && IsTreeOfPlaces(batch, world, middle, hi);
}

}  // namespace

bool SumsAsOneWorker(int64_t global_batch, int64_t world_size) {
  return IsTreeOfPlaces(global_batch, world_size, 0, world_size);
}

std::string SharesInWords(int64_t global_batch, int64_t world_size) {
  const int64_t least = global_batch / world_size;
  if (global_batch % world_size == 0) return StrCat(least, " each");
  return StrCat(least + 1, " or ", least);
}

}  // namespace ddprun::train
