// Decides when the all-reduce of a bucket starts: as soon as all of its gradients are ready and all earlier
// buckets have started. Every rank therefore starts the buckets in the same order, regardless of the order
// in which its gradients become ready.
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace ddprun {

// Gradients first .. first + count - 1 (indices in ready order), with num_elems elements in total.
struct Bucket {
  size_t first = 0;
  size_t count = 0;
  size_t num_elems = 0;
  bool operator==(const Bucket&) const = default;
};

// Groups the gradients into buckets, in the order in which they become ready. A bucket is closed once it
// holds at least bucket_elems elements (first_bucket_elems for the first bucket). A gradient is never split;
// an empty list gives no buckets. The result depends only on sizes, so all ranks get the same buckets.
std::vector<Bucket> PlanBuckets(std::span<const size_t> num_elems_in_ready_order, size_t first_bucket_elems,
                                size_t bucket_elems);

struct StepBegan {};
struct GradBecameReady {
  size_t index;  // in ready order
};
using BucketEvent = std::variant<StepBegan, GradBecameReady>;

// Effect: start these buckets, in this order.
struct LaunchBuckets {
  std::vector<size_t> buckets;
};

// Pure. Steps do not overlap:
//
//   StepBegan --> every bucket waits for its `count` gradients
//   GradBecameReady(i) --> the bucket of gradient i waits for one gradient fewer; then the next buckets
//                          are launched in order, up to the first bucket that still waits for a gradient
class BucketScheduler {
 public:
  explicit BucketScheduler(std::vector<Bucket> buckets);

  // REQUIRES: the first event is StepBegan; StepBegan is passed only when done(); each gradient becomes
  // ready once per step.
  [[nodiscard]] LaunchBuckets Step(const BucketEvent& event);

  // True if all buckets of the step are launched, or no step has begun.
  bool done() const { return next_ == buckets_.size(); }

 private:
  const std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;    // by gradient
  std::vector<char> ready_;          // by gradient: 1 if the gradient became ready in this step
  std::vector<size_t> num_missing_;  // by bucket: gradients that are not ready yet
  size_t next_;                      // first bucket not launched in this step
};

}  // namespace ddprun
