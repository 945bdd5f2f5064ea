// The worker's heartbeat. A worker reports its step and phase to the agent, which uses the reports to detect
// hangs. The worker also receives the agent's requests.
//
//   reporter.Report(step, WorkerPhase::kTraining);   // once per step
//   if (reporter.snapshot_requested()) { write a snapshot; reporter.ReportSnapshot(step); }
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/worker_env.h"
#include "base/worker_message.h"

namespace ddprun {

// Sends one packet per call to the agent's socket, env.agent_socket; sends nothing if the name is empty. Best
// effort: never blocks and never fails training. Reports are dropped while the socket is full. Without a
// connection, each call tries to connect.
//   Threads: one caller at a time.
class Reporter {
 public:
  explicit Reporter(const WorkerEnv& env);
  ~Reporter();
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Sends a report, then receives the agent's pending requests.
  //   step:    number of optimizer updates completed.
  //   message: text for people, truncated to 1000 bytes.
  void Report(int64_t step, WorkerPhase phase, std::string_view message = "");

  // Returns true if the agent has requested a snapshot, for example because nodes wait to join. The Report
  // that receives the request sets this value. ReportSnapshot clears it, and so does the agent when it
  // withdraws the request. One snapshot per job is enough: if rank 0 writes the snapshots, the other ranks
  // should ignore the request.
  [[nodiscard]] bool snapshot_requested() const { return snapshot_requested_; }

  // Sends a report that a snapshot of the state after `step` updates is complete and durable. All later
  // reports repeat this. Answers all snapshot requests received so far.
  void ReportSnapshot(int64_t step);

  // Number of reports accepted by the agent's socket. For tests and metrics.
  int64_t num_sent() const { return num_sent_; }

 private:
  bool Connected();
  void OnPacket(std::string_view packet);
  void ReceiveRequests();

  const WorkerEnv env_;
  int fd_ = -1;
  bool snapshot_requested_ = false;
  bool other_version_ = false;  // the agent has another version of worker_message.h
  std::optional<int64_t> snapshot_step_;
  int64_t num_sent_ = 0;
};

}  // namespace ddprun
