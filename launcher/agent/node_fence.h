// A node's fence: ends the node's workers before its lease expires.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/time.h"
#include "os/boot_clock.h"

namespace ddprun {

// Computes the deadline for workers: nine tenths of a lease after the last heartbeat or join that the
// coordinator is known to have received. The lease counts from a time read before that message was sent, on a
// clock that also runs while the machine is suspended, so a late answer cannot extend the lease.
//   Order: Joined for each join; then BeforeSign and Answered for each heartbeat.
class NodeFence {
 public:
  // `arm` sets the warden's deadline. It is called with each new deadline while there are workers, and with
  // nullopt when they are gone.
  explicit NodeFence(std::function<void(std::optional<BootTime>)> arm) : arm_(std::move(arm)) {}

  // A join is about to be sent. It counts as the first heartbeat.
  void Joined(Duration lease, BootTime now);
  // The coordinator requests heartbeats at this interval, a quarter of the coordinator's lease, which applies
  // if it is shorter than this node's. 0: the coordinator requests no heartbeats.
  void LeaseFrom(Duration heartbeat_interval);
  // A heartbeat is about to be sent.
  void BeforeSign(TimePoint now, BootTime boot_now);
  // The heartbeat that was sent at `sent` has been answered.
  void Answered(TimePoint sent);

  // No round of the job follows, so no other node waits for these workers: they may run until `deadline` even
  // if the coordinator is silent.
  void JobOver(BootTime deadline);

  void WorkersStart();
  void WorkersGone();

 private:
  void Renew();

  const std::function<void(std::optional<BootTime>)> arm_;
  Duration lease_{};
  BootTime alive_at_;                                 // send time of the last message known to be received
  std::deque<std::pair<TimePoint, BootTime>> signs_;  // unanswered heartbeats, oldest first
  bool armed_ = false;
  std::optional<BootTime> job_over_;  // set: the job is over; replaces the lease's deadline
};

}  // namespace ddprun
