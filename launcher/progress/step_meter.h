// Measures the steps of the workers of this node. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/step_times.h"
#include "base/time.h"
#include "base/worker_message.h"

namespace ddprun {

// A step lasts from one report with a higher step to the next one. The first step of a round does not count, because programs compile
// then; neither does a step in which another phase than training and loading is reported, such as a snapshot, or one that lasts longer
// than kLongest.
//
//   Order: Begin with each start of the workers, then the other methods.
//          REQUIRES: `now` never decreases.
class StepMeter {
 public:
  // The times of a worker are those of at least kSteps steps that end within at least kWindow.
  static constexpr Duration kWindow = seconds(10);
  static constexpr int kSteps = 3;
  static constexpr Duration kLongest = seconds(3600);

  void Begin(int num_workers);
  // A report of a worker.
  //   waited: how long the worker has waited for collective operations, since any time; nullopt: unknown.
  void Reported(LocalRank worker, int64_t step, WorkerPhase phase, std::optional<Duration> waited,
                TimePoint now);
  // Whether Take may return times, now or later.
  bool has_steps() const { return has_steps_; }
  // Returns the times of the workers whose windows are complete, and begins their next windows. Returns at most `most`; the others
  // later.
  std::vector<WorkerSteps> Take(TimePoint now, int most);

 private:
  // A step that has begun.
  struct Begun {
    TimePoint at;
    std::optional<Duration> waited = {};
    Duration data = {};
  };
  // The sums of a window.
  struct Window {
    TimePoint begin;
    int64_t steps = 0;
    double squares = 0, own_squares = 0;  // of the times of the steps, and of the own times, in seconds
    Duration time = {}, data = {}, waited = {};
    bool waited_known = true;
  };
  struct Worker {
    std::optional<int64_t> step = {};       // of the last report
    std::optional<TimePoint> loading = {};  // the last report was in this phase
    std::optional<Begun> begun = {};
    std::optional<Window> window = {};
  };

  void End(Worker& worker, int64_t steps, std::optional<Duration> waited, TimePoint now);

  std::vector<Worker> workers_;
  bool has_steps_ = false;  // a step has ended since Begin
};

}  // namespace ddprun
