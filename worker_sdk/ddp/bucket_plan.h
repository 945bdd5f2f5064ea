// Which gradients travel together.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace ddprun {

// Gradients first .. first + count - 1 (places in ready order), num_elems together.
struct Bucket {
  size_t first = 0;
  size_t count = 0;
  size_t num_elems = 0;
  bool operator==(const Bucket&) const = default;
};

// Cuts the gradients, in the order they become ready, into buckets: a bucket is closed as soon as it holds
// bucket_elems (the first one: first_bucket_elems) or more. A gradient is never split; an empty list gives no
// bucket. A function of sizes alone, so all ranks agree.
std::vector<Bucket> PlanBuckets(absl::Span<const size_t> num_elems_in_ready_order, size_t first_bucket_elems,
                                size_t bucket_elems);

}  // namespace ddprun
