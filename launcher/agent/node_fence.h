// A node's fence: the deadline at which the warden kills the node's workers, before the node's lease expires.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/time.h"
#include "os/boot_clock.h"

namespace ddprun {

// Computes the workers' deadline: nine tenths of a lease after the last heartbeat or join that the
// coordinator is known to have received. The lease counts from a time that is read before this message is
// sent, so a late answer cannot extend the lease. The clock also runs while the machine is suspended.
// If the coordinator leads the job by a register, its answers say how much of its lead is left. The deadline is not later than
// the end of the lead, which counts from the same time, because another coordinator may then continue the job.
//   Order: call Joined before each join. Then call BeforeSign before each heartbeat, and Answered after
//          each answer.
class NodeFence {
 public:
  // `arm` sets the warden's deadline. It is called with each new deadline while there are workers, and with
  // nullopt after the workers have exited.
  explicit NodeFence(std::function<void(std::optional<BootTime>)> arm) : arm_(std::move(arm)) {}

  // A join is about to be sent. It counts as the first heartbeat.
  void Joined(Duration lease, BootTime now);
  // The coordinator requests heartbeats at this interval, which is a quarter of the coordinator's lease. The
  // shorter of the coordinator's lease and this node's lease applies. 0: the coordinator requests no
  // heartbeats.
  //   lead_left: of the answer to the join; nullopt: the lead does not end.
  void LeaseFrom(Duration heartbeat_interval, std::optional<Duration> lead_left = {});
  // A heartbeat is about to be sent.
  void BeforeSign(TimePoint now, BootTime boot_now);
  // The heartbeat that was sent at `sent` has been answered.
  void Answered(TimePoint sent, std::optional<Duration> lead_left = {});

  // The job is over. No round follows, and no other node waits for these workers, so they may run until
  // `deadline` even if the coordinator is silent.
  void JobOver(BootTime deadline);

  // Whether the lead of the coordinator bounds the deadline, and not the lease of the node.
  bool bound_by_lead() const { return !job_over_ && lead_end_ && *lead_end_ < LeaseEnd(); }

  void WorkersStart();
  void WorkersGone();

 private:
  void Renew();
  BootTime LeaseEnd() const { return alive_at_ + lease_ - lease_ / 10; }
  // The coordinator has received a message that was sent at `at`, and leads for `lead_left` since then.
  void AliveAt(BootTime at, std::optional<Duration> lead_left);

  const std::function<void(std::optional<BootTime>)> arm_;
  Duration lease_{};
  BootTime alive_at_;                                 // the time from which the lease counts
  std::optional<BootTime> lead_end_;                  // no deadline is later
  std::deque<std::pair<TimePoint, BootTime>> signs_;  // send times of unanswered heartbeats, oldest first
  bool armed_ = false;
  std::optional<BootTime> job_over_;  // set: the job is over, and this deadline replaces that of the lease
};

}  // namespace ddprun
