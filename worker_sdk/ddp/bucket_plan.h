// Which gradients form a bucket. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddprun {

// A gradient, in the order in which gradients become ready.
struct ReadyGradient {
  double ready_s = 0;     // when it becomes ready, in seconds after any fixed point
  int64_t num_bytes = 0;  // that ranks exchange for it
};

// The time that an all-reduce takes: latency_s + bytes / bytes_per_s.
struct AllReduceCost {
  double latency_s = 0;
  double bytes_per_s = 1;
};

// Both functions group the gradients into buckets of consecutive ones, and return the number of gradients in each
// bucket. A gradient is never split; no bucket is empty.

// A bucket is closed once it holds at least `bucket_bytes` (`first_bucket_bytes` for the first bucket).
std::vector<size_t> PlanBySize(std::span<const int64_t> num_bytes, int64_t first_bucket_bytes,
                               int64_t bucket_bytes);

// Buckets are reduced one after the other, each at the earliest when its last gradient is ready. Returns a plan in which
// the last bucket is reduced at most a hundredth later than possible, counted from the time when the first gradient is
// ready, and of these plans one with the fewest buckets.
//   REQUIRES: times, sizes and costs are finite and not negative; bytes_per_s > 0. A gradient that becomes ready earlier
//             than the one before it counts as ready together with it.
std::vector<size_t> PlanByCost(std::span<const ReadyGradient> gradients, const AllReduceCost& cost);

// Divides the buckets of `plan` that are so large that latency is at most a hundredth of their time, and at least 1 MiB.
// The end of the plan is then hardly later if all gradients become ready as planned, and earlier if they become ready at
// other times; and the optimizer updates the first parameters earlier.
std::vector<size_t> DivideLarge(std::span<const ReadyGradient> gradients, const AllReduceCost& cost,
                                std::span<const size_t> plan);

// When the last bucket of `plan` is reduced, in seconds after the first gradient is ready.
double EndOfPlan(std::span<const ReadyGradient> gradients, const AllReduceCost& cost,
                 std::span<const size_t> plan);

}  // namespace ddprun
