// The worker's heartbeat. A worker reports its step and phase to the agent, which uses the reports to detect
// hangs. The worker also receives the agent's requests.
//
//   reporter.Report(step, WorkerPhase::kTraining);   // once per step
//   if (reporter.snapshot_requested()) { write a snapshot; reporter.ReportSnapshot(step); }
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/worker_env.h"
#include "base/worker_message.h"
#include "worker_sdk/agent_channel.h"

namespace ddprun {

// Sends one packet per call to the agent. Best effort: never blocks and never fails training. Reports are dropped while the
// socket is full.
//   Threads: one caller at a time, which sends on the channel; Deliver: any.
//   Owns:    none of the arguments.
class Reporter {
 public:
  // `env` is read in each call, because rank and round may change between calls.
  Reporter(const WorkerEnv& env, AgentChannel* channel) : env_(env), channel_(channel) {}
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

  // Set if the agent asks this rank to stop after a snapshot, until the round ends. The Report that receives the request sets it.
  [[nodiscard]] const std::optional<WorkerStop>& stop() const { return stop_; }

  // Sends a report, of the phase kTraining, that a snapshot of the state after `step` updates is complete and durable. All later
  // reports of the round repeat this. Answers all snapshot requests received so far. If stop() is set, waits until the agent's
  // socket has room, at most for 1 s: no later report may follow.
  void ReportSnapshot(int64_t step);

  // The round of the environment has changed: requests and snapshots of the round before do not count.
  void BeginRound();

  // From now on another thread receives from the channel, and calls Deliver with each request.
  void ReceiveElsewhere() { receives_ = false; }
  void Deliver(const AgentRequest& request);

  // Number of reports accepted by the agent's socket. For tests and metrics.
  int64_t num_sent() const { return num_sent_; }

 private:
  [[nodiscard]] std::string Packet(int64_t step, WorkerPhase phase, std::string_view message) const;
  void ReceiveRequests();

  const WorkerEnv& env_;
  AgentChannel* const channel_;
  bool receives_ = true;
  bool snapshot_requested_ = false;
  std::optional<WorkerStop> stop_;
  std::optional<int64_t> snapshot_step_;
  int64_t num_sent_ = 0;
  std::mutex mu_;
  std::optional<AgentRequest> newest_;  // that no Report has looked at. Guarded by mu_
};

}  // namespace ddprun
