// The types of cuda.h. Without a CUDA toolkit, those that the worker SDK uses: the same code is compiled in both cases, and
// only OpenCudaDriver is different.
#pragma once

#ifdef DDPRUN_HAVE_CUDA

#include <cuda.h>

#else

#include <cstdint>

using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT: as in cuda.h
using CUcontext = struct CUctx_st*;
using CUevent = struct CUevent_st*;
using CUfunction = struct CUfunc_st*;
using CUmodule = struct CUmod_st*;
using CUstream = struct CUstream_st*;
struct CUuuid {
  char bytes[16];
};

// Names and numbers are those of cuda.h. A driver may return any other number.
enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : unsigned { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 };
enum CUpointer_attribute : unsigned {
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
};
enum CUmemorytype : unsigned { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum CUstream_flags : unsigned { CU_STREAM_NON_BLOCKING = 1 };
enum CUevent_flags : unsigned { CU_EVENT_DISABLE_TIMING = 2 };
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;  // NOLINT: the name of a macro of cuda.h

#endif  // DDPRUN_HAVE_CUDA
