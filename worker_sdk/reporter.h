// The heartbeat: tells the agent where this worker is, so that a hang can be told from work, and hears what
// the agent wants.
//
//   reporter.Report(step, WorkerPhase::kTraining);   // once a step
//   if (reporter.snapshot_requested()) { write a snapshot; reporter.ReportSnapshot(step); }
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/worker_env.h"

namespace ddprun {

// What a worker is doing; proto/worker.proto has the same names.
enum class WorkerPhase { kStarting, kLoading, kTraining, kSnapshotting, kFinishing };

// Sends one datagram a call to the agent's socket (env.agent_socket); silent when there is none.
// Never blocks and never fails training: a report that the agent is too slow to take is lost, and when the
// agent is absent each call tries again.
//   Threads: one caller at a time.
class Reporter {
 public:
  explicit Reporter(const WorkerEnv& env);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // `step`: optimizer updates done so far. `message`: for people; cut at 1000 bytes. Then hears the agent's
  // requests that have come.
  void Report(int64_t step, WorkerPhase phase, absl::string_view message = "");

  // The agent wants a snapshot soon, say because nodes wait to come in. True from the Report that heard it
  // until ReportSnapshot, or until the agent takes it back. One snapshot of the job is enough: programs
  // whose rank 0 writes it for all let the other ranks pass over this.
  [[nodiscard]] bool snapshot_requested() const { return snapshot_requested_; }

  // A snapshot of the state after `step` updates is whole and durable. Said now and in every later report;
  // answers all requests that have come by now.
  void ReportSnapshot(int64_t step);

  // Reports that reached the agent's socket. For tests and metrics.
  int64_t num_sent() const { return num_sent_; }

 private:
  bool Connected();
  void Hear();

  const WorkerEnv env_;
  int fd_ = -1;
  bool snapshot_requested_ = false;
  std::optional<int64_t> snapshot_step_;
  int64_t num_sent_ = 0;
};

}  // namespace ddprun
