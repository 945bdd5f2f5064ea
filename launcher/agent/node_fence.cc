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
  signs_.clear();
  job_over_.reset();
}

void NodeFence::LeaseFrom(Duration heartbeat_interval) {
  if (heartbeat_interval > Duration::zero()) lease_ = std::min(lease_, 4 * heartbeat_interval);
}

void NodeFence::BeforeSign(TimePoint now, BootTime boot_now) {
  signs_.emplace_back(now, boot_now);
  if (signs_.size() > kMaxSigns) signs_.pop_front();
}

void NodeFence::Answered(TimePoint sent) {
  while (!signs_.empty() && signs_.front().first <= sent) {
    alive_at_ = std::max(alive_at_, signs_.front().second);
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

void NodeFence::Renew() { arm_(job_over_.value_or(alive_at_ + lease_ - lease_ / 10)); }

}  // namespace ddprun
