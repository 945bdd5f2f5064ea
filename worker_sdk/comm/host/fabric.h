// What the groups of ranks that one call of Connect created have in common: an error in one group is an error in all.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/monitor.h"

namespace ddprun {

//   Threads: any.
class Fabric {
 public:
  Fabric();

  // Adds a group; ends it if communication has already ended.
  void Add(Monitor* monitor);
  // Returns once End no longer uses `monitor`.
  void Remove(Monitor* monitor);

  // Ends communication in all groups with the error `why`, unless it has already ended.
  void End(const Status& why);
  // Returns once communication has ended, or after `timeout`. A connection that breaks may be a consequence of a death
  // that is reported a little later.
  void AwaitEnd(Duration timeout) const;
  // An eventfd that is readable once communication has ended.
  [[nodiscard]] int ended_fd() const { return ended_fd_.get(); }

 private:
  const UniqueFd ended_fd_;
  std::atomic<bool> ended_{false};  // End was called; ending a group calls End again
  std::mutex mu_;
  Status end_;
  std::vector<Monitor*> monitors_;
};

}  // namespace ddprun
