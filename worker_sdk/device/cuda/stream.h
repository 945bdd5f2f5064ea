// Queues of work on a device.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// A stream that is not synchronized with the default stream. Movable.
//   Threads:    one caller at a time. The driver allows more, but then the order of the work is not defined.
//   Destructor: does not block: work that is in the stream continues. Does nothing if the device is lost.
class CudaStream {
 public:
  // priority: 0 is the default; lower numbers are preferred. The driver limits it to the range of the device.
  static StatusOr<CudaStream> Create(std::shared_ptr<const CudaContext> context, int priority = 0);

  // Whether all work that was put into the stream has finished. Does not block.
  //   Errors: those of CudaStatus, also for errors of earlier work.
  [[nodiscard]] StatusOr<bool> Idle() const;
  // Blocks until the stream is idle: see PollUntil.
  Status Await(TimePoint deadline, std::string_view what) const;

  [[nodiscard]] CUstream get() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(CUstream stream) const noexcept;
    std::shared_ptr<const CudaContext> context;
  };
  explicit CudaStream(std::unique_ptr<CUstream_st, Destroy> stream) : stream_(std::move(stream)) {}
  [[nodiscard]] const CudaContext& context() const { return *stream_.get_deleter().context; }

  std::unique_ptr<CUstream_st, Destroy> stream_;
};

}  // namespace ddprun
