#include "launcher/agent/node_fence.h"

#include <algorithm>

namespace ddprun {
namespace {

// Maximum number of unanswered heartbeats that are kept. It exceeds LinkWatch::kMaxUnanswered, the number at
// which a connection counts as lost.
constexpr size_t kMaxSigns = 64;

}  // namespace

void NodeFence::Joined(Duration lease, BootTime now) {
  lease_ = lease;
  alive_at_ = now;
  lead_end_.reset();
  signs_.clear();
  job_over_.reset();
}

void NodeFence::LeaseFrom(Duration heartbeat_interval, std::optional<Duration> lead_left) {
  if (heartbeat_interval > Duration::zero()) lease_ = std::min(lease_, 4 * heartbeat_interval);
  AliveAt(alive_at_, lead_left);
}

void NodeFence::AliveAt(BootTime at, std::optional<Duration> lead_left) {
  alive_at_ = std::max(alive_at_, at);
  if (lead_left) lead_end_ = std::max(lead_end_.value_or(at), at + *lead_left);
}

void NodeFence::BeforeSign(TimePoint now, BootTime boot_now) {
  signs_.emplace_back(now, boot_now);
  if (signs_.size() > kMaxSigns) signs_.pop_front();
}

void NodeFence::Answered(TimePoint sent, std::optional<Duration> lead_left) {
  while (!signs_.empty() && signs_.front().first <= sent) {
    AliveAt(signs_.front().second, lead_left);
    signs_.pop_front();
  }
  if (armed_) Renew();
}

void NodeFence::JobOver(BootTime deadline) {
  job_over_ = deadline;
  if (armed_) Renew();
}

void NodeFence::WorkersStart() {
  armed_ = true;
  Renew();
}

void NodeFence::WorkersGone() {
  if (!std::exchange(armed_, false)) return;
  arm_(std::nullopt);
}

void NodeFence::Renew() { arm_(job_over_.value_or(std::min(LeaseEnd(), lead_end_.value_or(LeaseEnd())))); }

}  // namespace ddprun
