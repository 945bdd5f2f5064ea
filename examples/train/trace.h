// A record of what each rank does when, as a file for chrome://tracing and https://ui.perfetto.dev.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "ddprun/time.h"

namespace ddprun::train {

enum class TraceKind : int64_t {
  kForward = 0,
  kBackward = 1,
  kFinish = 2,     // from the end of backward until all buckets are reduced and all parameters are updated
  kOptimizer = 3,  // updates of parameters without a pause between them; inside kFinish
  kSnapshot = 4,   // on ranks that do not write it: the wait for it
  kBucket = 5,     // the all-reduce of a bucket
};

// Only integers, so that ranks can exchange events as arrays.
struct TraceEvent {
  TraceKind kind = TraceKind::kForward;
  int64_t step = 0;  // counted from 1
  int64_t begin_ns = 0, end_ns = 0;
  int64_t num_bytes = 0;  // of a bucket; otherwise 0
};

// The events of this rank. When it is full, a new event replaces the oldest one.
//   Threads: one caller at a time.
class TraceLog {
 public:
  // About as many as 2,500 steps have.
  static constexpr size_t kMaxEvents = 1 << 16;

  explicit TraceLog(size_t max_events = kMaxEvents) : max_events_(max_events) {}

  void Add(TraceKind kind, int64_t step, TimePoint begin, TimePoint end, int64_t num_bytes = 0);
  // Adds the buckets of a step. A bucket begins when the all-reduce was started and the bucket before it was
  // reduced, because all-reduces run one after the other.
  void AddBuckets(int64_t step, const std::vector<DataParallel::BucketTiming>& buckets);

  // Forgets all events.
  void Clear() {
    events_.clear();
    oldest_ = 0;
  }
  // Oldest first.
  [[nodiscard]] std::vector<TraceEvent> Events() const;

 private:
  const size_t max_events_;
  std::vector<TraceEvent> events_;
  size_t oldest_ = 0;  // once there are max_events_
};

// Adds an event from its construction to its destruction; does nothing if `log` is null.
class TraceSpan {
 public:
  TraceSpan(TraceLog* log, TraceKind kind, int64_t step);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceLog* const log_;
  const TraceKind kind_;
  const int64_t step_;
  const TimePoint begin_;
};

// Passes all calls on to another optimizer, and records when it updates parameters.
class TracedOptimizer : public Optimizer {
 public:
  // `optimizer` and `log` must outlive this object.
  TracedOptimizer(Optimizer& optimizer, TraceLog& log);

  [[nodiscard]] std::string_view name() const override { return optimizer_.name(); }
  void Update(size_t i, ConstTensor gradient, const OptimizerStep& step) override;
  [[nodiscard]] Status status() const override { return optimizer_.status(); }
  [[nodiscard]] std::vector<StateTensor> state() override { return optimizer_.state(); }
  // Must be called at the end of each step.
  void EndStep();

 private:
  Optimizer& optimizer_;
  TraceLog& log_;
  bool open_ = false;  // the members below are an event to which the next update may belong
  int64_t step_ = 0;
  TimePoint begin_, end_;
};

// The start of the trace on this rank. Collective.
//   Errors: those of Work::Wait.
StatusOr<TimePoint> StartTrace(Communicator comm, TimePoint deadline);

// Collective. Rank 0 replaces the file `path` by one with the events of all ranks. Times count from the start of
// the trace on the node. Clocks are those of the nodes: times of ranks of different nodes differ by the
// network's latency at the start, and by what the clocks have drifted apart since then.
//   node:    this rank's node. Ranks of a node have the same clock.
//   started: the result of StartTrace.
//   Errors:  those of Work::Wait; on rank 0 also those of the system, naming the file, which is then unchanged.
//            The other ranks do not fail then.
Status WriteTrace(Communicator comm, const TraceLog& log, int node, TimePoint started,
                  const std::string& path, TimePoint deadline);

}  // namespace ddprun::train
