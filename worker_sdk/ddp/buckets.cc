#include "worker_sdk/ddp/buckets.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ddprun {

BucketScheduler::BucketScheduler(std::vector<size_t> num_grads)
    : num_grads_(std::move(num_grads)), num_missing_(num_grads_.size()), next_(num_grads_.size()) {
  for (size_t b = 0; b < num_grads_.size(); ++b) bucket_of_.insert(bucket_of_.end(), num_grads_[b], b);
  ready_.resize(bucket_of_.size());
}

LaunchBuckets BucketScheduler::Step(const BucketEvent& event) {
  if (std::holds_alternative<StepBegan>(event)) {
    DDPRUN_CHECK(done(), "a step began before the previous one was done");
    std::fill(ready_.begin(), ready_.end(), 0);
    num_missing_ = num_grads_;
    next_ = 0;
    return {};
  }
  const size_t index = std::get<GradBecameReady>(event).index;
  DDPRUN_CHECK(index < ready_.size(), "no such gradient");
  DDPRUN_CHECK(!done() && !ready_[index], "a gradient became ready twice in a step, or outside a step");
  ready_[index] = 1;
  --num_missing_[bucket_of_[index]];
  LaunchBuckets launch;
  for (; next_ < num_grads_.size() && num_missing_[next_] == 0; ++next_) launch.buckets.push_back(next_);
  return launch;
}

}  // namespace ddprun
