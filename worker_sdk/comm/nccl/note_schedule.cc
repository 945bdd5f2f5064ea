#include "worker_sdk/comm/nccl/note_schedule.h"

#include <algorithm>

namespace ddprun {

void NoteSchedule::Follow(uint64_t oldest, TimePoint now) {
  if (oldest_ == oldest) return;
  if (num_sent_ > 0) patience_ = std::min(2 * patience_, kMaxPatience);
  oldest_ = oldest;
  since_ = now;
  num_sent_ = 0;
  pause_ = patience_;
  next_ = now + pause_;
}

std::optional<uint32_t> NoteSchedule::Due(uint64_t oldest, TimePoint deadline, TimePoint now) {
  Follow(oldest, now);
  const TimePoint due = num_sent_ == 0 ? std::min(next_, since_ + (deadline - since_) / 2) : next_;
  if (now < due) return std::nullopt;
  return SendNow(oldest, now);
}

uint32_t NoteSchedule::SendNow(uint64_t oldest, TimePoint now) {
  Follow(oldest, now);
  next_ = now + pause_;
  pause_ = std::min(2 * pause_, kMaxPatience);
  return num_sent_++;
}

}  // namespace ddprun
