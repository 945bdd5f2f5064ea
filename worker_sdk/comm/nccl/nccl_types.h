// The types of nccl.h. Without a CUDA toolkit, those that the worker SDK uses: the same code is compiled in both cases, and
// only OpenNcclLibrary is different.
#pragma once

#include "worker_sdk/device/cuda/cuda_types.h"

#ifdef DDPRUN_HAVE_CUDA

#include <nccl.h>

#else

using cudaStream_t = CUstream;
using ncclComm_t = struct ncclComm*;
struct ncclConfig_t;
struct ncclUniqueId {
  char internal[128];
};

// Names and numbers are those of nccl.h. A library may return any other number.
enum ncclResult_t : unsigned {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t : unsigned { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t : unsigned {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

#endif  // DDPRUN_HAVE_CUDA
