#include "worker_sdk/comm/host/fabric.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace ddprun {

Fabric::Fabric() : ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DDPRUN_CHECK(ended_fd_, "no descriptors are left");
}

void Fabric::Membership::Join(Member* member) {
  member_ = member;
  const std::lock_guard<std::mutex> lock(fabric_.mu_);
  fabric_.places_.push_back({.member = member});
  if (!fabric_.end_.ok()) member->End(fabric_.end_);
}

void Fabric::BeginLeaving(Member* member) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait(lock, [&] { return retiring_ != member; });
  for (Place& place : places_) place.leaving = place.leaving || place.member == member;
}

void Fabric::Remove(Member* member) {
  const std::lock_guard<std::mutex> lock(mu_);
  std::erase_if(places_, [&](const Place& place) { return place.member == member; });
  changed_.notify_all();
}

void Fabric::End(const Status& why) {
  if (ended_.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mu_);
  EndLocked(why);
}

void Fabric::EndLocked(const Status& why) {
  if (!end_.ok()) return;
  end_ = why;
  for (const Place& place : places_) place.member->End(why);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(ended_fd_.get(), &one, sizeof(one));
}

Status Fabric::status() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return end_;
}

void Fabric::AwaitEnd(Duration timeout) const {
  pollfd p{.fd = ended_fd_.get(), .events = POLLIN, .revents = 0};
  poll(&p, 1, static_cast<int>(ToMillis(timeout)));
}

void Fabric::Retire(const Status& why) {
  ended_.store(true);
  std::unique_lock<std::mutex> lock(mu_);
  EndLocked(why);
  // A group whose Split runs on another thread may get a child meanwhile: until its own Retire has returned.
  while (!places_.empty()) {
    const auto next = std::ranges::find(places_, false, &Place::leaving);
    if (next == places_.end()) {
      changed_.wait(lock);
      continue;
    }
    retiring_ = next->member;
    lock.unlock();
    retiring_->Retire();
    lock.lock();
    std::erase_if(places_, [&](const Place& place) { return place.member == retiring_; });
    retiring_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace ddprun
