// The worker's heartbeat: reports the step and phase to the agent, which uses the reports to detect hangs,
// and receives the agent's requests.
//
//   reporter.Report(step, WorkerPhase::kTraining);   // once per step
//   if (reporter.snapshot_requested()) { write a snapshot; reporter.ReportSnapshot(step); }
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/worker_env.h"

namespace ddprun {

// What a worker is doing. The names are the same as in proto/worker.proto.
enum class WorkerPhase { kStarting, kLoading, kTraining, kSnapshotting, kFinishing };

// Sends one packet per call to the agent's socket, env.agent_socket; sends nothing if the path is empty.
// Best effort: never blocks and never fails training. A report is dropped while the socket is full. Without a
// connection, each call tries to connect.
//   Threads: one caller at a time.
class Reporter {
 public:
  explicit Reporter(const WorkerEnv& env);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Sends a report, then receives the agent's pending requests.
  //   step:    optimizer updates completed.
  //   message: text for people, truncated to 1000 bytes.
  void Report(int64_t step, WorkerPhase phase, absl::string_view message = "");

  // True if the agent has requested a snapshot, for example because nodes wait to join. Set by the Report
  // that received the request; cleared by ReportSnapshot or when the agent withdraws the request. One
  // snapshot per job is enough: if rank 0 writes the snapshots, the other ranks should ignore the request.
  [[nodiscard]] bool snapshot_requested() const { return snapshot_requested_; }

  // Reports, now and in every later report, that a snapshot of the state after `step` updates is complete and
  // durable. This answers all snapshot requests received so far.
  void ReportSnapshot(int64_t step);

  // Number of reports accepted by the agent's socket. For tests and metrics.
  int64_t num_sent() const { return num_sent_; }

 private:
  bool Connected();
  void ReceiveRequests();

  const WorkerEnv env_;
  int fd_ = -1;
  bool snapshot_requested_ = false;
  std::optional<int64_t> snapshot_step_;
  int64_t num_sent_ = 0;
};

}  // namespace ddprun
