// Points in the work of a stream.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// An event without timing. Movable.
//   Threads:    one caller at a time.
//   Destructor: does not block, also if the event has not happened. Does nothing if the device is lost.
class CudaEvent {
 public:
  static StatusOr<CudaEvent> Create(std::shared_ptr<const CudaContext> context);

  // The event happens when the work that is in `stream` now has finished. An event may be recorded again; what waits for it
  // by then keeps waiting for the earlier work.
  //   REQUIRES: `stream` belongs to the event's context.
  Status Record(CUstream stream);
  // Work that is put into `stream` later starts after the event. Does not block. `stream` may be of another device.
  //   Errors: kFailedPrecondition: the event was not recorded.
  Status MakeWait(CUstream stream) const;
  // Whether the event has happened. Does not block.
  //   Errors: kFailedPrecondition: the event was not recorded; those of CudaStatus, also for errors of earlier work.
  [[nodiscard]] StatusOr<bool> Happened() const;
  // Blocks until the event has happened: see PollUntil.
  Status Await(TimePoint deadline, std::string_view what) const;

  [[nodiscard]] CUevent get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(CUevent event) const noexcept;
    std::shared_ptr<const CudaContext> context;
  };
  explicit CudaEvent(std::unique_ptr<CUevent_st, Destroy> event) : event_(std::move(event)) {}
  [[nodiscard]] const CudaContext& context() const { return *event_.get_deleter().context; }
  [[nodiscard]] Status CheckRecorded() const;

  std::unique_ptr<CUevent_st, Destroy> event_;
  bool recorded_ = false;
};

}  // namespace ddprun
