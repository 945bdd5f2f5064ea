#include "worker_sdk/ddp/bucket_plan.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace ddprun {
namespace {

constexpr double kTolerance = 0.01;

// The gradients with their times counted from the first one, which never decrease, and the time that the bytes of the
// gradients from i on take.
struct Timeline {
  Timeline(std::span<const ReadyGradient> gradients, const AllReduceCost& cost)
      : latency(cost.latency_s), ready(gradients.size()), remaining(gradients.size() + 1) {
    for (size_t i = 0; i < ready.size(); ++i) {
      const double since_first = gradients[i].ready_s - gradients[0].ready_s;
      ready[i] = i == 0 ? 0 : std::max(ready[i - 1], since_first);
    }
    int64_t bytes = 0;
    for (size_t i = ready.size(); i-- > 0;) {
      bytes += gradients[i].num_bytes;
      remaining[i] = static_cast<double>(bytes) / cost.bytes_per_s;
    }
  }

  double latency;
  std::vector<double> ready;
  std::vector<double> remaining;
};

// The plan with the fewest buckets of those that end by `deadline`; nullopt if there is none.
//
// From the last bucket to the first, each bucket starts as late as possible. If k buckets, among them the bucket at hand,
// cover the gradients from i on, it must start by deadline - k * latency - remaining[i], whatever the borders between the
// later buckets are. So each bucket may take as many gradients as this permits: a longer bucket leaves the earlier ones
// with gradients that are ready no later.
std::optional<std::vector<size_t>> FewestBuckets(const Timeline& line, double deadline) {
  std::vector<size_t> plan;
  size_t end = line.ready.size();
  while (end > 0) {
    const double start = deadline - static_cast<double>(plan.size() + 1) * line.latency;
    size_t begin = end;
    while (begin > 0 && line.ready[end - 1] <= start - line.remaining[begin - 1]) --begin;
    if (begin == end) return std::nullopt;
    plan.push_back(end - begin);
    end = begin;
  }
  std::ranges::reverse(plan);
  return plan;
}

}  // namespace

std::vector<size_t> PlanBySize(std::span<const int64_t> num_bytes, int64_t first_bucket_bytes,
                               int64_t bucket_bytes) {
  std::vector<size_t> plan;
  size_t open = 0;
  int64_t bytes = 0;
  for (const int64_t size : num_bytes) {
    ++open;
    bytes += size;
    if (bytes < (plan.empty() ? first_bucket_bytes : bucket_bytes)) continue;
    plan.push_back(open);
    open = 0;
    bytes = 0;
  }
  if (open > 0) plan.push_back(open);
  return plan;
}

std::vector<size_t> PlanByCost(std::span<const ReadyGradient> gradients, const AllReduceCost& cost) {
  if (gradients.empty()) return {};
  DDPRUN_CHECK(cost.bytes_per_s > 0, "bytes_per_s is " << cost.bytes_per_s);
  const Timeline line(gradients, cost);
  // The least end is between these two: one bucket is always possible.
  std::vector<size_t> best = {gradients.size()};
  double possible = EndOfPlan(gradients, cost, best);
  double impossible = 0;
  // Halves the interval until it is much smaller than the tolerance.
  for (int i = 0; i < 60 && possible - impossible > 1e-6 * possible; ++i) {
    const double middle = impossible + (possible - impossible) / 2;
    if (auto plan = FewestBuckets(line, middle)) {
      best = *std::move(plan);
      possible = middle;
    } else {
      impossible = middle;
    }
  }
  if (auto plan = FewestBuckets(line, possible * (1 + kTolerance))) best = *std::move(plan);
  return best;
}

double EndOfPlan(std::span<const ReadyGradient> gradients, const AllReduceCost& cost,
                 std::span<const size_t> plan) {
  const Timeline line(gradients, cost);
  double end = 0;
  size_t next = 0;
  for (const size_t count : plan) {
    DDPRUN_CHECK(count > 0 && next + count <= gradients.size(), "not a plan for these gradients");
    const double bytes_s = line.remaining[next] - line.remaining[next + count];
    next += count;
    end = std::max(end, line.ready[next - 1]) + line.latency + bytes_s;
  }
  DDPRUN_CHECK(next == gradients.size(), "not a plan for these gradients");
  return end;
}

std::vector<size_t> DivideLarge(std::span<const ReadyGradient> gradients, const AllReduceCost& cost,
                                std::span<const size_t> plan) {
  constexpr double kMinBytes = 1 << 20, kMinRatio = 100;
  const double enough = std::max(kMinBytes, kMinRatio * cost.latency_s * cost.bytes_per_s);
  std::vector<size_t> divided;
  size_t next = 0;
  for (const size_t count : plan) {
    size_t open = 0;
    double open_bytes = 0;
    for (const ReadyGradient& gradient : gradients.subspan(next, count)) {
      // A bucket is closed once it has enough bytes, or before a gradient that has enough alone.
      if (open > 0 && (open_bytes >= enough || static_cast<double>(gradient.num_bytes) >= enough)) {
        divided.push_back(open);
        open = 0;
        open_bytes = 0;
      }
      ++open;
      open_bytes += static_cast<double>(gradient.num_bytes);
    }
    divided.push_back(open);
    next += count;
  }
  return divided;
}

}  // namespace ddprun
