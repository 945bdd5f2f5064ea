// Puts an operation of a group into a stream, as calls of NCCL.
#pragma once

#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/nccl/library.h"

namespace ddprun {

// Calls NCCL for `call`. The context of the communicator's device must be current, and the communicator ready.
//   in, out: null where the operation has none.
//   size:    the number of ranks of the communicator.
//   Returns: NCCL's result: ncclSuccess or ncclInProgress, or an error with which the communicator cannot be used any more.
//   Errors:  kInvalidArgument: NCCL has no such type, operator or operation; nothing was called.
StatusOr<ncclResult_t> CallNccl(const NcclLibrary& library, const internal::Call& call, const void* in,
                                void* out, int size, ncclComm_t comm, cudaStream_t stream);

}  // namespace ddprun
