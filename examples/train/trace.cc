#include "examples/train/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "os/descriptor.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using Clock = std::chrono::steady_clock;

// Updates with a shorter pause between them are one event.
constexpr Duration kPause = std::chrono::microseconds(20);

int64_t Nanos(TimePoint t) { return t.time_since_epoch().count(); }

const char* NameOf(TraceKind kind) {
  switch (kind) {
    case TraceKind::kForward:
      return "forward";
    case TraceKind::kBackward:
      return "backward";
    case TraceKind::kFinish:
      return "finish";
    case TraceKind::kOptimizer:
      return "optimizer";
    case TraceKind::kSnapshot:
      return "snapshot";
    case TraceKind::kBucket:
      return "bucket";
  }
  return "unknown";
}

// What a rank sends before its events.
struct Head {
  int64_t node = 0;
  int64_t started_ns = 0;
  int64_t num_events = 0;
};
constexpr int64_t kHeadInts = sizeof(Head) / sizeof(int64_t);
constexpr int64_t kEventInts = sizeof(TraceEvent) / sizeof(int64_t);

// The trace event format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
// A rank is a process with two threads: its computation, and its buckets.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path)
      : path_(path),
        temporary_(path + ".tmp"),
        file_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_) error_ = errno;
    text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
  }
  // Leaves no other file than that of Finish, also if Finish was not called.
  ~TraceFile() { (void)remove(temporary_.c_str()); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void AddRank(int rank, int64_t node, int64_t origin_ns, const std::vector<TraceEvent>& events) {
    Name("process_name", rank, 0, StrCat("rank ", rank, ", node ", node));
    Name("thread_name", rank, 0, "computation");
    Name("thread_name", rank, 1, "buckets");
    for (const TraceEvent& e : events) {
      const bool bucket = e.kind == TraceKind::kBucket;
      Separate();
      absl::StrAppendFormat(
          &text_, R"({"name":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"step":%d)",
          NameOf(e.kind), rank, bucket ? 1 : 0, static_cast<double>(e.begin_ns - origin_ns) * 1e-3,
          static_cast<double>(e.end_ns - e.begin_ns) * 1e-3, e.step);
      if (bucket) absl::StrAppendFormat(&text_, R"(,"bytes":%d)", e.num_bytes);
      text_ += "}}";
    }
    Flush();
  }

  Status Finish() {
    text_ += "\n]}\n";
    Flush();
    if (file_ && close(file_.Release()) != 0 && error_ == 0) error_ = errno;
    if (error_ == 0 && rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
    if (error_ == 0) return OkStatus();
    return FileError("cannot write", path_, error_);
  }

 private:
  void Name(const char* what, int rank, int thread, const std::string& name) {
    Separate();
    absl::StrAppendFormat(&text_, R"({"name":"%s","ph":"M","pid":%d,"tid":%d,"args":{"name":"%s"}})", what,
                          rank, thread, name);
  }
  void Separate() { text_ += std::exchange(first_, false) ? "\n" : ",\n"; }
  void Flush() {
    if (error_ == 0) error_ = WriteAll(file_.get(), text_);
    text_.clear();
  }

  const std::string path_, temporary_;
  UniqueFd file_;
  std::string text_;  // not yet written
  int error_ = 0;     // the first errno value
  bool first_ = true;
};

}  // namespace

void TraceLog::Add(TraceKind kind, int64_t step, TimePoint begin, TimePoint end, int64_t num_bytes) {
  const TraceEvent event{
      .kind = kind, .step = step, .begin_ns = Nanos(begin), .end_ns = Nanos(end), .num_bytes = num_bytes};
  if (events_.size() < max_events_) {
    events_.push_back(event);
    return;
  }
  events_[oldest_] = event;
  oldest_ = (oldest_ + 1) % max_events_;
}

void TraceLog::AddBuckets(int64_t step, const std::vector<DataParallel::BucketTiming>& buckets) {
  TimePoint free{};
  for (const DataParallel::BucketTiming& bucket : buckets) {
    const TimePoint begin = std::max(bucket.started, free);
    free = std::max(begin, bucket.reduced);
    Add(TraceKind::kBucket, step, begin, free, bucket.num_bytes);
  }
}

std::vector<TraceEvent> TraceLog::Events() const {
  std::vector<TraceEvent> events = events_;
  std::rotate(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(oldest_), events.end());
  return events;
}

TraceSpan::TraceSpan(TraceLog* log, TraceKind kind, int64_t step)
    : log_(log), kind_(kind), step_(step), begin_(log != nullptr ? Clock::now() : TimePoint()) {}
TraceSpan::~TraceSpan() {
  if (log_ != nullptr) log_->Add(kind_, step_, begin_, Clock::now());
}

TracedOptimizer::TracedOptimizer(Optimizer& optimizer, TraceLog& log)
    : Optimizer(optimizer.parameters()), optimizer_(optimizer), log_(log) {}

void TracedOptimizer::Update(size_t i, ConstTensor gradient, const OptimizerStep& step) {
  const TimePoint begin = Clock::now();
  if (open_ && begin - end_ > kPause) EndStep();
  if (!open_) begin_ = begin;
  open_ = true;
  step_ = step.step;
  optimizer_.Update(i, gradient, step);
  end_ = Clock::now();
}

void TracedOptimizer::EndStep() {
  if (open_) log_.Add(TraceKind::kOptimizer, step_, begin_, end_);
  open_ = false;
}

StatusOr<TimePoint> StartTrace(Communicator comm, TimePoint deadline) {
  DDPRUN_RETURN_IF_ERROR(comm.Barrier().Wait(deadline));
  return Clock::now();
}

Status WriteTrace(Communicator comm, const TraceLog& log, int node, TimePoint started,
                  const std::string& path, TimePoint deadline) {
  std::vector<TraceEvent> events = log.Events();
  const auto num_events = static_cast<int64_t>(events.size());
  Head head{.node = node, .started_ns = Nanos(started), .num_events = num_events};
  std::vector<Head> heads(comm.size());
  const auto elements = [](auto& structs, int64_t ints_each) {
    return Tensor{structs.data(), static_cast<int64_t>(structs.size()) * ints_each, DType::kInt64};
  };
  DDPRUN_RETURN_IF_ERROR(
      comm.AllGather({&head, kHeadInts, DType::kInt64}, elements(heads, kHeadInts)).Wait(deadline));
  Status status;
  if (comm.rank() != 0) {
    status = comm.Send(elements(events, kEventInts), 0).Wait(deadline);
  } else {
    // The first rank of a node that returned from the barrier defines the node's start.
    std::map<int64_t, int64_t> origins;
    for (const Head& h : heads) {
      const auto [origin, added] = origins.try_emplace(h.node, h.started_ns);
      origin->second = std::min(origin->second, h.started_ns);
    }
    TraceFile file(path);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const Head& from = heads[rank];
      if (rank > 0) {
        events.assign(from.num_events, {});
        DDPRUN_RETURN_IF_ERROR(comm.Receive(elements(events, kEventInts), rank).Wait(deadline));
      }
      file.AddRank(rank, from.node, origins[from.node], events);
    }
    status = file.Finish();
  }
  // No rank leaves before all messages have arrived.
  Status together = comm.Barrier().Wait(deadline);
  return status.ok() ? together : status;
}

}  // namespace ddprun::train
