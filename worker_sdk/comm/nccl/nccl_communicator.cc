#include "worker_sdk/comm/nccl/nccl_communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/poll.h"

namespace ddprun {
namespace {

// How long NCCL may take to complete operations on other ranks before the communicator is destroyed.
constexpr Duration kFinalizeLimit = seconds(1);
// How long ncclCommAbort may take. It waits for NCCL's threads and for its kernels, which see the abort.
constexpr Duration kEndLimit = seconds(10);

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<const CudaContext> context, const NcclLibrary& nccl,
                                   CudaStream stream)
    : context_(std::move(context)),
      nccl_(nccl),
      stream_(std::make_shared<const CudaStream>(std::move(stream))) {}

NcclCommunicator::~NcclCommunicator() { Abort(); }

Status NcclCommunicator::Connect(const ncclUniqueId& id, int rank, int size, TimePoint deadline,
                                 FunctionRef<Status()> fabric) {
  const CudaScope scope(*context_);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  DDPRUN_RETURN_IF_ERROR(StartNcclCommunicator(nccl_, id, rank, size, &comm_));
  return PollUntil(*context_, deadline, "NCCL's initialization", [&]() -> StatusOr<bool> {
    DDPRUN_RETURN_IF_ERROR(fabric());
    Query();
    DDPRUN_RETURN_IF_ERROR(error_);
    return state_ == CommState::kReady;
  });
}

void NcclCommunicator::Query() {
  if (comm_ == nullptr || state_ >= CommState::kFailed) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = nccl_.ncclCommGetAsyncError(comm_, &state);
  if (result != ncclSuccess) return Fail(NcclStatus(nccl_, result, "ncclCommGetAsyncError", comm_));
  if (state == ncclSuccess) {
    state_ = CommState::kReady;
  } else if (state != ncclInProgress) {
    Fail(NcclStatus(nccl_, state, "NCCL", comm_));
  } else if (state_ != CommState::kInitializing) {
    state_ = CommState::kInProgress;
  }
}

void NcclCommunicator::NoteCall(ncclResult_t result, std::string_view name) {
  const Status status = NcclStatus(nccl_, result, name, comm_);
  if (!status.ok()) return Fail(status);
  state_ = CommState::kInProgress;
}

void NcclCommunicator::Fail(const Status& why) {
  if (state_ >= CommState::kFailed) return;  // the first error counts
  state_ = CommState::kFailed;
  error_ = why;
  failed_since_ = std::chrono::steady_clock::now();
}

void NcclCommunicator::EndWith(ncclResult_t (*end)(ncclComm_t)) {
  if (comm_ == nullptr || context_->lost()) {
    state_ = CommState::kAborted;
    return;
  }
  state_ = CommState::kAborting;
  ended_ = std::make_shared<Event>();
  // A thread of its own: that of the context may be in a call that waits for a kernel which only the abort ends.
  std::thread thread([ended = ended_, end, comm = comm_, context = context_, stream = stream_]() mutable {
    {
      const CudaScope scope(*context);
      if (scope.status().ok()) (void)end(comm);
    }
    // Before the event: who waits for it may exit, and the process must not end while this thread still holds the GPU.
    stream.reset();
    context.reset();
    ended->Set();
  });
  const bool in_time = ended_->WaitUntil(DeadlineAfter(kEndLimit));
  in_time ? thread.join() : thread.detach();
  state_ = in_time ? CommState::kAborted : CommState::kStuck;
}

void NcclCommunicator::Abort() {
  if (state_ < CommState::kAborting) EndWith(nccl_.ncclCommAbort);
}

void NcclCommunicator::Leave(FunctionRef<Status()> fabric) {
  Query();
  if (state_ != CommState::kReady || context_->lost() || !fabric().ok()) return Abort();
  NoteCall(nccl_.ncclCommFinalize(comm_), "ncclCommFinalize");
  const Status finalized =
      PollUntil(*context_, DeadlineAfter(kFinalizeLimit), "NCCL", [&]() -> StatusOr<bool> {
        DDPRUN_RETURN_IF_ERROR(fabric());
        Query();
        DDPRUN_RETURN_IF_ERROR(error_);
        return state_ == CommState::kReady;
      });
  finalized.ok() ? EndWith(nccl_.ncclCommDestroy) : Abort();
}

void NcclCommunicator::AwaitEnd() {
  if (state_ != CommState::kStuck) return;
  ended_->Wait();
  state_ = CommState::kAborted;
}

}  // namespace ddprun
