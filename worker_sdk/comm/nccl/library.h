// The functions of NCCL, libnccl.so.2, opened at run time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/nccl/nccl_types.h"
#include "worker_sdk/core/function_ref.h"

namespace ddprun {

// X(name, result, parameters) for each function. Counts are numbers of elements.
#define DDPRUN_NCCL_FUNCTIONS(X)                                                                             \
  X(ncclGetVersion, ncclResult_t, (int* version))                                                            \
  X(ncclGetUniqueId, ncclResult_t, (ncclUniqueId * id))                                                      \
  X(ncclCommInitRankConfig, ncclResult_t,                                                                    \
    (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config))                          \
  X(ncclCommFinalize, ncclResult_t, (ncclComm_t comm))                                                       \
  X(ncclCommDestroy, ncclResult_t, (ncclComm_t comm))                                                        \
  X(ncclCommAbort, ncclResult_t, (ncclComm_t comm))                                                          \
  X(ncclCommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t * error))                            \
  X(ncclGetErrorString, const char*, (ncclResult_t result))                                                  \
  X(ncclGetLastError, const char*, (ncclComm_t comm))                                                        \
  X(ncclGroupStart, ncclResult_t, ())                                                                        \
  X(ncclGroupEnd, ncclResult_t, ())                                                                          \
  X(ncclAllReduce, ncclResult_t,                                                                             \
    (const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,          \
     cudaStream_t stream))                                                                                   \
  X(ncclReduce, ncclResult_t,                                                                                \
    (const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,                 \
     ncclComm_t comm, cudaStream_t stream))                                                                  \
  X(ncclReduceScatter, ncclResult_t,                                                                         \
    (const void* in, void* out, size_t out_count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,      \
     cudaStream_t stream))                                                                                   \
  X(ncclAllGather, ncclResult_t,                                                                             \
    (const void* in, void* out, size_t in_count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclBroadcast, ncclResult_t,                                                                             \
    (const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                \
     cudaStream_t stream))                                                                                   \
  X(ncclSend, ncclResult_t,                                                                                  \
    (const void* in, size_t count, ncclDataType_t type, int to, ncclComm_t comm, cudaStream_t stream))       \
  X(ncclRecv, ncclResult_t,                                                                                  \
    (void* out, size_t count, ncclDataType_t type, int from, ncclComm_t comm, cudaStream_t stream))          \
  X(ncclCommRegister, ncclResult_t, (ncclComm_t comm, void* memory, size_t num_bytes, void** handle))        \
  X(ncclCommDeregister, ncclResult_t, (ncclComm_t comm, void* handle))

// The table. Copyable; tests fill it with functions of their own.
struct NcclLibrary {
#define DDPRUN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  DDPRUN_NCCL_FUNCTIONS(DDPRUN_MEMBER)
#undef DDPRUN_MEMBER
};

// The oldest library that is accepted, which is the first one with ncclCommRegister, in NCCL's numbers.
inline constexpr int kMinNcclVersion = 21900;  // 2.19.0

// Opens libnccl.so.2, once in a process; later calls return the same. It is never closed. If the process has a library of that
// name already, such as LibTorch's, this is the one.
//   Errors:  kFailedPrecondition: the build had no CUDA toolkit; there is no library; it lacks a function; it is too old, or of
//            another major version than the header of the build. The message names the file, the function or both versions.
//   Threads: any.
StatusOr<const NcclLibrary*> OpenNcclLibrary();

// In NCCL's numbers; and as people write it: "2.19.0".
StatusOr<int> NcclVersionOf(const NcclLibrary& library);
std::string NcclVersionText(int version);

// The parts of OpenNcclLibrary, for tests.
//   symbol:        returns the address of the function, or null.
//   built_version: NCCL_VERSION_CODE of the header.
StatusOr<NcclLibrary> ResolveNcclLibrary(FunctionRef<void*(const char* name)> symbol);
Status CheckNcclVersion(const NcclLibrary& library, int built_version);

// The result of a call: "ncclAllReduce: ncclRemoteError: remote process exited or there was a network error: <the last error
// of the library>". The library's last error may be of another communicator, or empty.
//   Returns: OK for ncclSuccess and ncclInProgress. kUnavailable: NCCL lost a peer, or a system call or the network failed;
//            kInvalidArgument: NCCL refused the arguments, or the ranks differ; otherwise kInternal.
Status NcclStatus(const NcclLibrary& library, ncclResult_t result, std::string_view call, ncclComm_t comm);

// Starts to create the communicator of `size` ranks, without blocking: its state is that of ncclCommGetAsyncError. The context
// of the device must be current. If this fails after `*comm` was set, the caller must abort `*comm`.
//   id: of ncclGetUniqueId on one rank.
Status StartNcclCommunicator(const NcclLibrary& library, const ncclUniqueId& id, int rank, int size,
                             ncclComm_t* comm);

// NCCL has all types of elements. kInvalidArgument if `dtype` is none of the values of DType.
StatusOr<ncclDataType_t> NcclTypeOf(DType dtype);
// NCCL has all operators: kMean is ncclAvg. Three results differ from those that communicator.h promises for the host: the order
// of sums; sums of 16 bits, which may be rounded to 16 bits after each addition; kMin and kMax, which may skip NaNs.
//   Errors: kInvalidArgument: `op` is none of the values of ReduceOp, or kMean of integers, which ncclAvg would round down.
StatusOr<ncclRedOp_t> NcclOperatorOf(ReduceOp op, DType dtype);

}  // namespace ddprun
