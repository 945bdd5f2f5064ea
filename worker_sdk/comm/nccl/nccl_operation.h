// An operation of a group that uses NCCL: one of NCCL, or a message.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/steady_condition.h"
#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/nccl/watch.h"
#include "worker_sdk/device/cuda/event.h"

namespace ddprun {

// What the operations of a group share with its thread.
struct NcclShared {
  std::mutex mu;
  // Notified when an operation starts, finishes, is in flight, or has another deadline; and when the thread must stop.
  SteadyCondition changed;
};

// The events of an operation: it starts after `before`, and has ended at `after`, which is recorded by then.
struct NcclEvents {
  CudaEvent before;
  CudaEvent after;
};

//   Threads: one caller for the functions of Operation; the group's thread for the others. The members are guarded by
//            NcclShared::mu, unless stated otherwise.
class NcclOperation : public internal::Operation {
 public:
  // `events.before` was recorded in the caller's stream.
  NcclOperation(std::shared_ptr<NcclShared> shared, const internal::Call& call, const void* in, void* out,
                Duration timeout, const Device& device, NcclEvents events);

  Status Wait(TimePoint deadline) override;
  bool Done() override;
  Status WaitOn(const Stream& stream) override;
  std::optional<TimePoint> ended() const override;

  // Whether the GPU may still work on it. The group's thread may not have seen yet that it does not.
  //   REQUIRES: the caller does not hold NcclShared::mu. Threads: any.
  [[nodiscard]] bool IsPending() const;
  // REQUIRES: the caller does not hold NcclShared::mu.
  void Finish(const Status& status);  // destroys the events
  void SetInFlight();
  // REQUIRES: the operation has not finished. Changed only before the operation is in flight.
  NcclEvents& events() { return *events_; }

  const internal::Call call;
  const void* const in;
  void* const out;

  // Guarded by NcclShared::mu; `happened` only by the group's thread. Of a message, only the state, which is kQueued or kInFlight,
  // and the deadline are used.
  OperationView view;

 protected:
  [[nodiscard]] const Device& device() const { return device_; }

 private:
  void LimitTo(TimePoint deadline);

  const std::shared_ptr<NcclShared> shared_;
  const Device device_;
  std::shared_ptr<NcclEvents> events_;  // null once the operation has finished; shared with WaitOn
  std::optional<Status> result_;
  TimePoint ended_ = {};
};

// An operation that failed when it was started.
class FailedNcclOperation final : public internal::Operation {
 public:
  explicit FailedNcclOperation(Status why) : Operation(Duration::zero()), why_(std::move(why)) {}
  Status Wait(TimePoint /*deadline*/) override { return why_; }
  bool Done() override { return true; }
  Status WaitOn(const Stream& /*stream*/) override { return why_; }

 private:
  const Status why_;
};

}  // namespace ddprun
