#include "worker_sdk/reporter.h"

#include <unistd.h>

#include <string>
#include <utility>

namespace ddprun {

namespace {

// How long the report of the last snapshot waits for an agent that reads nothing.
constexpr Duration kLastReportLimit = seconds(1);

}  // namespace

std::string Reporter::Packet(int64_t step, WorkerPhase phase, std::string_view message) const {
  return Encode(WorkerReport{.round = env_.round,
                             .rank = env_.rank,
                             .local_rank = env_.local_rank,
                             .pid = getpid(),
                             .step = step,
                             .phase = phase,
                             .message = std::string(message),
                             .snapshot_step = snapshot_step_});
}

void Reporter::Report(int64_t step, WorkerPhase phase, std::string_view message) {
  if (channel_->TrySend(Packet(step, phase, message))) ++num_sent_;
  ReceiveRequests();
}

void Reporter::ReportSnapshot(int64_t step) {
  ReceiveRequests();
  snapshot_requested_ = false;
  snapshot_step_ = step;
  if (!stop_) return Report(step, WorkerPhase::kTraining);
  if (channel_->Send(Packet(step, WorkerPhase::kTraining, ""), "the report of a snapshot", kLastReportLimit)
          .ok())
    ++num_sent_;
}

void Reporter::BeginRound() {
  snapshot_requested_ = false;
  stop_.reset();
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
  if (!request || request->round != env_.round) return;
  snapshot_requested_ = request->take_snapshot;
  if (request->stop) stop_ = request->stop;
}

}  // namespace ddprun
