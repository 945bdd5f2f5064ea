#include "worker_sdk/reporter.h"

#include <unistd.h>

#include <string>
#include <utility>

namespace ddprun {

void Reporter::Report(int64_t step, WorkerPhase phase, std::string_view message) {
  if (channel_->TrySend(Encode(WorkerReport{.round = env_.round,
                                            .rank = env_.rank,
                                            .local_rank = env_.local_rank,
                                            .pid = getpid(),
                                            .step = step,
                                            .phase = phase,
                                            .message = std::string(message),
                                            .snapshot_step = snapshot_step_}))) {
    ++num_sent_;
  }
  ReceiveRequests();
}

void Reporter::ReportSnapshot(int64_t step) {
  ReceiveRequests();
  snapshot_requested_ = false;
  snapshot_step_ = step;
  Report(step, WorkerPhase::kSnapshotting);
}

void Reporter::BeginRound() {
  snapshot_requested_ = false;
  snapshot_step_.reset();
}

void Reporter::Deliver(const AgentRequest& request) {
  const std::lock_guard<std::mutex> lock(mu_);
  newest_ = request;
}

void Reporter::ReceiveRequests() {
  if (receives_) {
    bool ended = false;  // the next send notices that
    const AgentChannel::Connection connection = channel_->connection();
    while (const std::optional<AgentChannel::Message> message = channel_->Receive(connection, &ended)) {
      if (const auto* request = std::get_if<AgentRequest>(&*message)) Deliver(*request);
    }
  }
  const std::lock_guard<std::mutex> lock(mu_);
  const std::optional<AgentRequest> request = std::exchange(newest_, std::nullopt);
  if (request && request->round == env_.round) snapshot_requested_ = request->take_snapshot;
}

}  // namespace ddprun
