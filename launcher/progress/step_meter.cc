#include "launcher/progress/step_meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

namespace ddprun {
namespace {

constexpr uint64_t kMostSteps = 1'000'000;  // that end with one report, so that no sum overflows

double Seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

void StepMeter::Begin(int num_workers) {
  workers_.assign(num_workers, {});
  has_steps_ = false;
}

void StepMeter::Reported(LocalRank local_rank, int64_t step, WorkerPhase phase,
                         std::optional<Duration> waited, TimePoint now) {
  Worker& worker = workers_.at(local_rank.value());
  const std::optional<int64_t> last = std::exchange(worker.step, step);
  const std::optional<TimePoint> loading = std::exchange(worker.loading, std::nullopt);
  if (worker.begun && loading) worker.begun->data += now - *loading;
  if (phase != WorkerPhase::kTraining && phase != WorkerPhase::kLoading) {
    worker.begun.reset();
    return;
  }
  if (phase == WorkerPhase::kLoading) worker.loading = now;
  if (last == step) return;
  if (last && step > *last) {
    const uint64_t steps = static_cast<uint64_t>(step) - static_cast<uint64_t>(*last);
    if (worker.begun) End(worker, static_cast<int64_t>(std::min(steps, kMostSteps)), waited, now);
    worker.begun = Begun{.at = now, .waited = waited};
  } else {
    worker.begun.reset();  // the first report, or the worker has returned to an earlier step
  }
}

void StepMeter::End(Worker& worker, int64_t steps, std::optional<Duration> waited, TimePoint now) {
  const Begun& begun = *worker.begun;
  const Duration time = now - begun.at;
  if (time > kLongest) return;
  if (!worker.window) worker.window = Window{.begin = begun.at};
  Window& window = *worker.window;
  has_steps_ = true;
  // Reports may be lost, so that several steps end at once. Their times are taken as equal.
  window.steps += steps;
  window.time += time;
  const auto square = [steps](Duration d) { return Seconds(d) * Seconds(d) / static_cast<double>(steps); };
  window.squares += square(time);
  window.data += begun.data;
  if (waited && begun.waited) {
    const Duration communication = std::clamp(*waited - *begun.waited, Duration::zero(), time - begun.data);
    window.waited += communication;
    window.own_squares += square(time - communication);
  } else {
    window.waited_known = false;
  }
}

std::vector<WorkerSteps> StepMeter::Take(TimePoint now, int most) {
  std::vector<WorkerSteps> all;
  for (size_t i = 0; i < workers_.size() && static_cast<int>(all.size()) < most; ++i) {
    std::optional<Window>& window = workers_[i].window;
    if (!window || window->steps < kSteps || now < window->begin + kWindow) continue;
    const auto steps = static_cast<double>(window->steps);
    const auto spread = [steps](double squares, Duration sum) {
      const double mean = Seconds(sum) / steps;
      return std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(std::sqrt(std::max(0.0, squares / steps - mean * mean))));
    };
    StepTimes times{.step = window->time / window->steps,
                    .spread = spread(window->squares, window->time),
                    .data = window->data / window->steps};
    if (window->waited_known) {
      times.communication = window->waited / window->steps;
      times.own_spread = spread(window->own_squares, window->time - window->waited);
    }
    all.push_back({LocalRank(static_cast<int>(i)), times});
    window.reset();
  }
  return all;
}

}  // namespace ddprun
