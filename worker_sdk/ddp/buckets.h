// When a bucket's all-reduce is started: as soon as all of its gradients are ready and all buckets before it
// were started. So every rank starts the same buckets in the same order, in whatever order its gradients
// become ready.
#pragma once

#include <cstddef>
#include <variant>
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

struct StepBegan {};
struct GradBecameReady {
  size_t index;  // place in ready order
};
using BucketEvent = std::variant<StepBegan, GradBecameReady>;

// Orders: start these buckets, in this order.
struct LaunchBuckets {
  std::vector<size_t> buckets;
};

// Pure. One step after the other:
//
//   StepBegan ──> every bucket waits for its `count` gradients
//   GradBecameReady(i) ──> its bucket has one less to wait for;
//                          the buckets from the next unlaunched one on that wait for none are launched
class BucketScheduler {
 public:
  explicit BucketScheduler(std::vector<Bucket> buckets);

  // REQUIRES: StepBegan first and only when done(); each gradient once per step.
  [[nodiscard]] LaunchBuckets Step(const BucketEvent& event);

  // All buckets of the step are launched (or no step began yet).
  bool done() const { return next_ == buckets_.size(); }

 private:
  const std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;    // by gradient
  std::vector<char> ready_;          // by gradient: became ready in this step
  std::vector<size_t> num_missing_;  // by bucket
  size_t next_;                      // first bucket not launched in this step
};

}  // namespace ddprun
