#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "ddprun/optim.h"
#include "worker_sdk/device/host/power.h"

namespace ddprun {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Sum of (-1)^k t^(2k + first) / (2k + first)!, which is the cosine (first = 0) or the sine (first = 1) of t, for
// |t| <= pi / 4.
double Series(double t, int first) {
  double sum = 0;
  for (int n = 16 + first; n > first; n -= 2) sum = (1 + sum) * (-t * t / (n * (n - 1)));
  return (1 + sum) * (first == 0 ? 1 : t);
}

// cos(pi * x) for 0 <= x <= 1. libm's cosine is not used, because its last bit may differ between machines.
double CosPi(double x) {
  if (x > 0.5) return -CosPi(1 - x);
  return x <= 0.25 ? Series(kPi * x, 0) : Series(kPi * (0.5 - x), 1);
}

// How far `step` is from `first` to `last`, from 0 to 1.
double Progress(int64_t step, int64_t first, int64_t last) {
  if (step >= last) return 1;
  return std::max(0.0, static_cast<double>(step - first) / static_cast<double>(last - first));
}

}  // namespace

double Warmup(int64_t step, int64_t warmup_steps) {
  if (warmup_steps <= 0) return 1;
  return std::min(1.0, static_cast<double>(step) / static_cast<double>(warmup_steps));
}

double WarmupLinear(int64_t step, int64_t warmup_steps, int64_t total_steps, double last) {
  if (step < warmup_steps) return Warmup(step, warmup_steps);
  return last + (1 - last) * (1 - Progress(step, std::max<int64_t>(warmup_steps, 0), total_steps));
}

double WarmupCosine(int64_t step, int64_t warmup_steps, int64_t total_steps, double last) {
  if (step < warmup_steps) return Warmup(step, warmup_steps);
  const double progress = Progress(step, std::max<int64_t>(warmup_steps, 0), total_steps);
  return last + (1 - last) * 0.5 * (1 + CosPi(progress));
}

double StepDecay(int64_t step, int64_t every, double factor) {
  DDPRUN_CHECK(every >= 1, "every < 1");
  return Power(factor, std::max<int64_t>(step - 1, 0) / every);
}

double LinearScaling(int64_t step, int world_size, int64_t warmup_steps) {
  return 1 + (world_size - 1) * Warmup(step, warmup_steps);
}

}  // namespace ddprun
