// The fence of a node: its workers live no longer than the others may wait for it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/time.h"
#include "os/boot_clock.h"

namespace ddprun {

// Says until when workers may live: nearly a lease after the last sign of life that the coordinator is known
// to have heard. The time that counts is that before the sign was sent, on a clock that goes on while the
// machine is suspended, so that whoever hears of it late takes no time for granted.
//   Order: Joined with each join; then BeforeSign and Answered as signs go out and answers come.
class NodeFence {
 public:
  // `arm` is told the deadline while there are workers, none as they are gone: the warden's switch.
  explicit NodeFence(std::function<void(std::optional<BootTime>)> arm) : arm_(std::move(arm)) {}

  // A join is being sent; it is a sign of life too, the first.
  void Joined(Duration lease, BootTime now);
  // The coordinator wants a heartbeat that often, which is four times in its lease; that counts if it is
  // shorter than ours. 0: it wants none.
  void LeaseFrom(Duration heartbeat_interval);
  // A heartbeat is being sent.
  void BeforeSign(TimePoint now, BootTime boot_now);
  // The heartbeat that was sent at `sent` has been answered.
  void Answered(TimePoint sent);

  // No round of the job follows, so no other node waits for these workers: they may live until `deadline`, however
  // long the coordinator stays silent.
  void JobOver(BootTime deadline);

  void WorkersStart();
  void WorkersGone();

 private:
  void Renew();

  const std::function<void(std::optional<BootTime>)> arm_;
  Duration lease_{};
  BootTime alive_at_;                                 // when the coordinator knew us alive, at the latest
  std::deque<std::pair<TimePoint, BootTime>> signs_;  // sent, not answered; the oldest first
  bool armed_ = false;
  std::optional<BootTime> job_over_;  // the deadline that is left
};

}  // namespace ddprun
