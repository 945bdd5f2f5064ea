// The functions of the CUDA driver, libcuda.so.1, opened at run time: one binary serves machines with and without a GPU.
#pragma once

#include <cstddef>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/device/cuda/cuda_types.h"

namespace ddprun {

// X(name, result, parameters) for each function. A name has the suffix of the version whose parameters are used. The driver
// keeps old versions, so dlsym of that name returns a function with these parameters in every later driver. (cuGetProcAddress
// would choose the version by a number, and reports as missing what dlsym reports as missing.)
#define DDPRUN_CUDA_FUNCTIONS(X)                                                                             \
  X(cuInit, CUresult, (unsigned flags))                                                                      \
  X(cuDriverGetVersion, CUresult, (int* version))                                                            \
  X(cuGetErrorName, CUresult, (CUresult error, const char** name))                                           \
  X(cuGetErrorString, CUresult, (CUresult error, const char** text))                                         \
  X(cuDeviceGetCount, CUresult, (int* count))                                                                \
  X(cuDeviceGet, CUresult, (CUdevice * device, int index))                                                   \
  X(cuDeviceGetName, CUresult, (char* name, int size, CUdevice device))                                      \
  X(cuDeviceGetUuid_v2, CUresult, (CUuuid * uuid, CUdevice device))                                          \
  X(cuDeviceGetAttribute, CUresult, (int* value, CUdevice_attribute attribute, CUdevice device))             \
  X(cuDevicePrimaryCtxRetain, CUresult, (CUcontext * context, CUdevice device))                              \
  X(cuDevicePrimaryCtxRelease_v2, CUresult, (CUdevice device))                                               \
  X(cuCtxPushCurrent_v2, CUresult, (CUcontext context))                                                      \
  X(cuCtxPopCurrent_v2, CUresult, (CUcontext * context))                                                     \
  X(cuCtxGetCurrent, CUresult, (CUcontext * context))                                                        \
  X(cuStreamCreateWithPriority, CUresult, (CUstream * stream, unsigned flags, int priority))                 \
  X(cuStreamDestroy_v2, CUresult, (CUstream stream))                                                         \
  X(cuStreamWaitEvent, CUresult, (CUstream stream, CUevent event, unsigned flags))                           \
  X(cuStreamQuery, CUresult, (CUstream stream))                                                              \
  X(cuStreamSynchronize, CUresult, (CUstream stream))                                                        \
  X(cuStreamGetCtx, CUresult, (CUstream stream, CUcontext * context))                                        \
  X(cuEventCreate, CUresult, (CUevent * event, unsigned flags))                                              \
  X(cuEventDestroy_v2, CUresult, (CUevent event))                                                            \
  X(cuEventRecord, CUresult, (CUevent event, CUstream stream))                                               \
  X(cuEventQuery, CUresult, (CUevent event))                                                                 \
  X(cuMemAlloc_v2, CUresult, (CUdeviceptr * memory, size_t num_bytes))                                       \
  X(cuMemFree_v2, CUresult, (CUdeviceptr memory))                                                            \
  X(cuMemGetInfo_v2, CUresult, (size_t * free_bytes, size_t * total_bytes))                                  \
  X(cuMemHostAlloc, CUresult, (void** memory, size_t num_bytes, unsigned flags))                             \
  X(cuMemFreeHost, CUresult, (void* memory))                                                                 \
  X(cuPointerGetAttribute, CUresult, (void* value, CUpointer_attribute attribute, CUdeviceptr pointer))      \
  X(cuMemcpyHtoDAsync_v2, CUresult, (CUdeviceptr to, const void* from, size_t num_bytes, CUstream stream))   \
  X(cuMemcpyDtoHAsync_v2, CUresult, (void* to, CUdeviceptr from, size_t num_bytes, CUstream stream))         \
  X(cuMemcpyDtoDAsync_v2, CUresult, (CUdeviceptr to, CUdeviceptr from, size_t num_bytes, CUstream stream))   \
  X(cuMemsetD8Async, CUresult, (CUdeviceptr memory, unsigned char value, size_t num_bytes, CUstream stream)) \
  X(cuModuleLoadData, CUresult, (CUmodule * module, const void* image))                                      \
  X(cuModuleUnload, CUresult, (CUmodule module))                                                             \
  X(cuModuleGetFunction, CUresult, (CUfunction * function, CUmodule module, const char* name))               \
  X(cuLaunchKernel, CUresult,                                                                                \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,               \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,          \
     void** extra))

// The table. Copyable; tests fill it with functions of their own.
struct CudaDriver {
#define DDPRUN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_MEMBER)
#undef DDPRUN_MEMBER
};

// The oldest driver that is accepted, in the driver's numbers: 1000 * major + 10 * minor.
inline constexpr int kMinCudaVersion = 12000;

// Opens libcuda.so.1 and initializes it, once in a process; later calls return the same. It is never closed.
//   Errors:  kFailedPrecondition: the build had no CUDA toolkit; no driver; a driver that is too old or lacks a function; no
//            GPU. The message names the file or the function, and what to do.
//   Threads: any.
StatusOr<const CudaDriver*> OpenCudaDriver();

// The parts of OpenCudaDriver, for tests.
//   symbol: returns the address of the function, or null.
StatusOr<CudaDriver> ResolveCudaDriver(FunctionRef<void*(const char* name)> symbol);
// Checks the version of the driver, then initializes it.
Status StartCudaDriver(const CudaDriver& driver);

// True for the errors after which the context's memory is lost and every call fails until the process exits: uncorrectable
// ECC or NVLink errors; an illegal address, instruction or address space; a misaligned address; an invalid program counter; a
// failed assertion; a damaged stack; a launch that failed or timed out; a context that was destroyed or whose MPS client was
// terminated; a driver that shuts down; an unavailable device; an unknown error, which Xid errors are often reported as.
bool IsSticky(CUresult error);

// The error of a call: "cuEventQuery on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
//   device:   the index of the device; negative if the call concerns none.
//   Returns:  OK for CUDA_SUCCESS; kDataLoss for sticky errors, with a text that says that the context is lost; kResourceExhausted if
//             memory is used up; otherwise kInternal.
Status CudaStatus(const CudaDriver& driver, CUresult error, std::string_view call, int device);

// True for the statuses of sticky errors of a device, also after WithContext.
bool IsDeviceLost(const Status& status);

}  // namespace ddprun
