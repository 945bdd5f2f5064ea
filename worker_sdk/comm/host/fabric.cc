#include "worker_sdk/comm/host/fabric.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/check.h"

namespace ddprun {

Fabric::Fabric() : ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  DDPRUN_CHECK(ended_fd_, "no descriptors are left");
}

void Fabric::Add(Monitor* monitor) {
  const std::lock_guard<std::mutex> lock(mu_);
  monitors_.push_back(monitor);
  if (!end_.ok()) monitor->SetDead(end_);
}

void Fabric::Remove(Monitor* monitor) {
  const std::lock_guard<std::mutex> lock(mu_);
  std::erase(monitors_, monitor);
}

void Fabric::End(const Status& why) {
  if (ended_.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mu_);
  end_ = why;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(ended_fd_.get(), &one, sizeof(one));
  for (Monitor* monitor : monitors_) monitor->SetDead(why);
}

void Fabric::AwaitEnd(Duration timeout) const {
  pollfd p{.fd = ended_fd_.get(), .events = POLLIN, .revents = 0};
  poll(&p, 1, static_cast<int>(ToMillis(timeout)));
}

}  // namespace ddprun
