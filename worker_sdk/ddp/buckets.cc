#include "worker_sdk/ddp/buckets.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace ddprun {

BucketScheduler::BucketScheduler(std::vector<Bucket> buckets)
    : buckets_(std::move(buckets)), num_missing_(buckets_.size()), next_(buckets_.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) bucket_of_.insert(bucket_of_.end(), buckets_[b].count, b);
  ready_.resize(bucket_of_.size());
}

LaunchBuckets BucketScheduler::Step(const BucketEvent& event) {
  if (std::holds_alternative<StepBegan>(event)) {
    DDPRUN_CHECK(done(), "a step began before the previous one was done");
    std::fill(ready_.begin(), ready_.end(), 0);
    for (size_t b = 0; b < buckets_.size(); ++b) num_missing_[b] = buckets_[b].count;
    next_ = 0;
    return {};
  }
  const size_t index = std::get<GradBecameReady>(event).index;
  DDPRUN_CHECK(index < ready_.size(), "no such gradient");
  DDPRUN_CHECK(!done() && !ready_[index], "a gradient became ready twice in a step, or outside a step");
  ready_[index] = 1;
  --num_missing_[bucket_of_[index]];
  LaunchBuckets launch;
  for (; next_ < buckets_.size() && num_missing_[next_] == 0; ++next_) launch.buckets.push_back(next_);
  return launch;
}

std::vector<Bucket> PlanBuckets(std::span<const size_t> num_elems_in_ready_order, size_t first_bucket_elems,
                                size_t bucket_elems) {
  std::vector<Bucket> buckets;
  Bucket open;
  for (size_t num_elems : num_elems_in_ready_order) {
    ++open.count;
    open.num_elems += num_elems;
    if (open.num_elems >= (buckets.empty() ? first_bucket_elems : bucket_elems)) {
      buckets.push_back(open);
      open = {.first = open.first + open.count};
    }
  }
  if (open.count > 0) buckets.push_back(open);
  return buckets;
}

}  // namespace ddprun
