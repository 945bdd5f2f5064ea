#include "rendezvous/client/link_watch.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr int64_t kMaxLeadMs = int64_t{1000} * 3600 * 24 * 365;  // so that no sum overflows

}  // namespace

void LinkWatch::Started(TimePoint now, Duration welcome_limit) {
  welcome_limit_ = welcome_limit;
  welcome_end_ = now + welcome_limit;
}

void LinkWatch::Opened(TimePoint now, Duration interval) { BeatFrom(now, interval); }

std::optional<LinkWatch::Answer> LinkWatch::Received(const proto::CoordinatorMessage& message,
                                                     TimePoint now) {
  unanswered_ = 0;
  if (message.has_welcome()) {
    welcome_end_.reset();
    const Duration interval = milliseconds(message.welcome().heartbeat_ms());
    if (interval != interval_) BeatFrom(now, interval);
  }
  if (!message.has_heard() || sent_.empty()) return std::nullopt;
  Answer answer{.sent = sent_.front()};
  sent_.pop_front();
  if (message.heard().has_lead_left_ms()) {
    answer.lead_left = milliseconds(std::clamp<int64_t>(message.heard().lead_left_ms(), 0, kMaxLeadMs));
  }
  return answer;
}

void LinkWatch::HeartbeatSent(TimePoint now) {
  ++unanswered_;
  sent_.push_back(now);
  BeatFrom(now, interval_);
}

std::optional<TimePoint> LinkWatch::NextDeadline() const {
  if (!welcome_end_ || (next_beat_ && *next_beat_ < *welcome_end_)) return next_beat_;
  return welcome_end_;
}

LinkWatch::Action LinkWatch::Due(TimePoint now) {
  if (welcome_end_ && now >= *welcome_end_) {
    return GiveUp{absl::StrCat("it did not answer the join within ", ToMillis(welcome_limit_), " ms")};
  }
  if (!next_beat_ || now < *next_beat_) return {};
  if (unanswered_ >= kMaxUnanswered) {
    return GiveUp{
        absl::StrCat("it has not answered for ", ToMillis(interval_ * (kMaxUnanswered + 1)), " ms")};
  }
  return SendHeartbeat{};
}

void LinkWatch::BeatFrom(TimePoint now, Duration interval) {
  interval_ = interval;
  next_beat_.reset();
  if (interval > Duration::zero()) next_beat_ = now + interval;
}

}  // namespace ddprun
