// The heartbeat: tells the agent where this worker is, so that a hang can be told from work.
#pragma once

#include <cstdint>

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

  // `step`: optimizer updates done so far. `message`: for people; cut at 1000 bytes.
  void Report(int64_t step, WorkerPhase phase, absl::string_view message = "");

  // Reports that reached the agent's socket. For tests and metrics.
  int64_t num_sent() const { return num_sent_; }

 private:
  bool Connected();

  const WorkerEnv env_;
  int fd_ = -1;
  int64_t num_sent_ = 0;
};

}  // namespace ddprun
