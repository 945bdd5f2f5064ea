// Decides when the all-reduce of a bucket starts: as soon as all of its gradients are ready and all earlier
// buckets have started. Every rank therefore starts the buckets in the same order, regardless of the order
// in which its gradients become ready.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

namespace ddprun {

struct StepBegan {};
struct GradBecameReady {
  size_t index;  // its number in the order of the buckets
};
using BucketEvent = std::variant<StepBegan, GradBecameReady>;

// Effect: start these buckets, in this order.
struct LaunchBuckets {
  std::vector<size_t> buckets;
};

// Pure. Steps do not overlap:
//
//   StepBegan --> every bucket waits for all of its gradients
//   GradBecameReady(i) --> the bucket of gradient i waits for one gradient fewer; then the next buckets
//                          are launched in order, up to the first bucket that still waits for a gradient
class BucketScheduler {
 public:
  // `num_grads`: the number of gradients in each bucket. Gradients are numbered in the order of their buckets.
  explicit BucketScheduler(std::vector<size_t> num_grads);

  // REQUIRES: the first event is StepBegan; StepBegan is passed only when done(); each gradient becomes
  // ready once per step.
  [[nodiscard]] LaunchBuckets Step(const BucketEvent& event);

  // True if all buckets of the step are launched, or no step has begun.
  bool done() const { return next_ == num_grads_.size(); }

 private:
  std::vector<size_t> num_grads_;    // by bucket
  std::vector<size_t> bucket_of_;    // by gradient
  std::vector<char> ready_;          // by gradient: 1 if the gradient became ready in this step
  std::vector<size_t> num_missing_;  // by bucket: gradients that are not ready yet
  size_t next_;                      // first bucket not launched in this step
};

}  // namespace ddprun
