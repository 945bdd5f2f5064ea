// The communicator of NCCL behind a group.
#pragma once

#include <memory>
#include <string_view>

#include "base/event.h"
#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/library.h"
#include "worker_sdk/comm/nccl/watch.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {

// A non-blocking communicator with its stream. If the device is lost, it stays as it is: nothing can end it.
//   Threads: one caller at a time.
class NcclCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<const CudaContext> context, const NcclLibrary& nccl, CudaStream stream);
  // Aborts, if neither Abort nor Leave was called.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Collective. Returns once NCCL has connected all ranks, or with NCCL's error.
  //   fabric: looked at meanwhile; its error is returned.
  //   Errors: kDeadlineExceeded: NCCL waits for a rank.
  Status Connect(const ncclUniqueId& id, int rank, int size, TimePoint deadline,
                 FunctionRef<Status()> fabric);

  [[nodiscard]] ncclComm_t handle() const { return comm_; }
  [[nodiscard]] CUstream stream() const { return stream_->get(); }
  [[nodiscard]] CommState state() const { return state_; }
  // If the state is kFailed.
  [[nodiscard]] const Status& error() const { return error_; }
  [[nodiscard]] TimePoint failed_since() const { return failed_since_; }

  // Asks NCCL for the state. Does not block.
  void Query();
  // A call has returned `result`. It is in progress until the state was queried, also if it is complete.
  void NoteCall(ncclResult_t result, std::string_view name);
  // Sets the state to kFailed, unless it is that or a later one.
  void Fail(const Status& why);

  // ncclCommAbort. Afterwards the state is kAborted; kStuck if NCCL has not returned after 10 s. The stream and the context then
  // exist until it does.
  void Abort();
  // ncclCommFinalize, then ncclCommDestroy, so that other ranks still receive the data of this one. If NCCL needs more than 1 s
  // for the first, or `fabric` has ended: Abort.
  void Leave(FunctionRef<Status()> fabric);
  // If the state is kStuck, blocks until NCCL has returned.
  void AwaitEnd();

 private:
  void EndWith(ncclResult_t (*end)(ncclComm_t));

  const std::shared_ptr<const CudaContext> context_;
  const NcclLibrary& nccl_;
  const std::shared_ptr<const CudaStream> stream_;  // shared with a call that has not returned
  ncclComm_t comm_ = nullptr;
  CommState state_ = CommState::kInitializing;
  Status error_;
  TimePoint failed_since_ = {};
  std::shared_ptr<Event> ended_;  // of the call that ends the communicator
};

}  // namespace ddprun
