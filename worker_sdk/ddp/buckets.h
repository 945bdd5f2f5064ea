// Decides when a bucket's all-reduce starts: once all of its gradients are ready and all earlier buckets have
// started. Thus every rank starts the buckets in the same order, regardless of the order in which its
// gradients become ready.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "absl/types/span.h"

namespace ddprun {

// Gradients first .. first + count - 1 (positions in ready order), with num_elems elements in total.
struct Bucket {
  size_t first = 0;
  size_t count = 0;
  size_t num_elems = 0;
  bool operator==(const Bucket&) const = default;
};

// Groups the gradients, in the order in which they become ready, into buckets. A bucket is closed once it
// holds bucket_elems (the first one: first_bucket_elems) or more. A gradient is never split; an empty list
// gives no buckets. Depends on sizes alone, so all ranks agree.
std::vector<Bucket> PlanBuckets(absl::Span<const size_t> num_elems_in_ready_order, size_t first_bucket_elems,
                                size_t bucket_elems);

struct StepBegan {};
struct GradBecameReady {
  size_t index;  // position in ready order
};
using BucketEvent = std::variant<StepBegan, GradBecameReady>;

// Effect: start these buckets, in this order.
struct LaunchBuckets {
  std::vector<size_t> buckets;
};

// Pure. Steps follow one another:
//
//   StepBegan ──> every bucket waits for its `count` gradients
//   GradBecameReady(i) ──> the bucket of i waits for one gradient less; then, in order, each next
//                          unlaunched bucket that waits for none is launched
class BucketScheduler {
 public:
  explicit BucketScheduler(std::vector<Bucket> buckets);

  // REQUIRES: StepBegan first and only when done(); each gradient once per step.
  [[nodiscard]] LaunchBuckets Step(const BucketEvent& event);

  // True if all buckets of the step are launched, or no step has begun.
  bool done() const { return next_ == buckets_.size(); }

 private:
  const std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;    // by gradient
  std::vector<char> ready_;          // by gradient: 1 if it became ready in this step
  std::vector<size_t> num_missing_;  // by bucket
  size_t next_;                      // first bucket not launched in this step
};

}  // namespace ddprun
