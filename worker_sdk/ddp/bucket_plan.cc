#include "worker_sdk/ddp/bucket_plan.h"

namespace ddprun {

std::vector<Bucket> PlanBuckets(absl::Span<const size_t> num_elems_in_ready_order, size_t first_bucket_elems,
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
