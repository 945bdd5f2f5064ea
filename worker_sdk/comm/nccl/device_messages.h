// Send and Receive of memory of a GPU, through pinned memory of the host and the messages of the host backend.
//
// NCCL runs all operations of a communicator in order, so that two ranks which send to each other before they receive would wait
// for ever, and a communicator for each direction of each pair is expensive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_operation.h"
#include "worker_sdk/comm/nccl/staging.h"
#include "worker_sdk/comm/nccl/staging_windows.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {

class DeviceMessage;

// The messages of a group. A thread, which starts with the first message, copies between memory of the GPU and windows.
//   Threads: one caller of Start; the other functions: any.
class DeviceMessages {
 public:
  // Allocates the pinned memory and the streams: later, allocations could wait for kernels of NCCL. An error here is an error of
  // Start. `host` must outlive this object.
  DeviceMessages(std::shared_ptr<const CudaContext> context, HostGroupInterface* host);
  // As Stop.
  ~DeviceMessages();

  // Starts a kSend or kReceive, after the work that is in `stream` now.
  //   Errors: kResourceExhausted: there is not enough pinned memory; others: those of CudaStatus.
  StatusOr<std::shared_ptr<internal::Operation>> Start(const internal::Call& call, const void* in, void* out,
                                                       CUstream stream);
  // True if all messages have finished.
  [[nodiscard]] bool IsIdle() const;
  // Returns when all messages have finished, at most kCopyLimit after the fabric has ended.
  //   REQUIRES: they have, or the fabric has ended; Start is not called any more.
  void Stop();
  // Blocks until no copy is in flight.
  //   REQUIRES: Stop was called.
  void AwaitCopies() const;

 private:
  // What copies need; made by the constructor.
  struct Resources {
    CudaStream to_host, to_device;
    PinnedMemory memory;
  };
  static StatusOr<Resources> Allocate(const std::shared_ptr<const CudaContext>& context, int num_queues);

  // One queue for each direction of each pair.
  [[nodiscard]] int num_queues() const { return 2 * (host_->size() - 1); }
  [[nodiscard]] int QueueOf(const internal::Call& call) const;

  // The functions below run on the thread.
  void Run();
  // Acts on a message. Returns false if there is nothing to do.
  bool Step(DeviceMessage& message);
  StagingView Look(DeviceMessage& message);
  Status Copy(DeviceMessage& message, const StagingView& view);
  void Finish(DeviceMessage& message, const Status& status);
  // The device is lost, or a copy has failed.
  void Fail(const Status& why);

  const std::shared_ptr<const CudaContext> context_;
  HostGroupInterface* const host_;
  const StatusOr<Resources> resources_;

  // Used by the thread only.
  StagingWindows windows_;
  Status device_error_;
  std::optional<TimePoint> ended_since_;  // when the thread has seen that the fabric has ended

  const std::shared_ptr<NcclShared> shared_ = std::make_shared<NcclShared>();
  // Guarded by shared_->mu.
  std::map<int, std::deque<std::shared_ptr<DeviceMessage>>> queues_;  // those that are not empty
  uint64_t num_started_ = 0;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace ddprun
