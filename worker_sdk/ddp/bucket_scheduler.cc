#include "worker_sdk/ddp/bucket_scheduler.h"

#include <algorithm>
#include <utility>

#include "worker_sdk/comm/check.h"

namespace ddprun {

BucketScheduler::BucketScheduler(std::vector<Bucket> buckets)
    : buckets_(std::move(buckets)), num_missing_(buckets_.size()), next_(buckets_.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) bucket_of_.insert(bucket_of_.end(), buckets_[b].count, b);
  ready_.resize(bucket_of_.size());
}

LaunchBuckets BucketScheduler::Step(const BucketEvent& event) {
  if (std::holds_alternative<StepBegan>(event)) {
    DDPRUN_CHECK(done(), "a step begins when the one before has launched everything");
    std::fill(ready_.begin(), ready_.end(), 0);
    for (size_t b = 0; b < buckets_.size(); ++b) num_missing_[b] = buckets_[b].count;
    next_ = 0;
    return {};
  }
  const size_t index = std::get<GradBecameReady>(event).index;
  DDPRUN_CHECK(index < ready_.size(), "no such gradient");
  DDPRUN_CHECK(!done() && !ready_[index], "a gradient becomes ready once in a step");
  ready_[index] = 1;
  --num_missing_[bucket_of_[index]];
  LaunchBuckets launch;
  for (; next_ < buckets_.size() && num_missing_[next_] == 0; ++next_) launch.buckets.push_back(next_);
  return launch;
}

}  // namespace ddprun
