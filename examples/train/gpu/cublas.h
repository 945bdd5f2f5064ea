// The functions of cuBLAS, opened at run time: one binary serves machines with and without a GPU.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ddprun/status.h"
#include "examples/train/gpu/cublas_types.h"
#include "worker_sdk/core/function_ref.h"

namespace ddprun::train {

// X(name, result, parameters) for each function. Matrices are column-major.
#define DDPRUN_CUBLAS_FUNCTIONS(X)                                                                      \
  X(cublasGetProperty, cublasStatus_t, (libraryPropertyType type, int* value))                          \
  X(cublasGetStatusName, const char*, (cublasStatus_t status))                                          \
  X(cublasCreate_v2, cublasStatus_t, (cublasHandle_t * handle))                                         \
  X(cublasDestroy_v2, cublasStatus_t, (cublasHandle_t handle))                                          \
  X(cublasSetStream_v2, cublasStatus_t, (cublasHandle_t handle, cudaStream_t stream))                   \
  X(cublasSetWorkspace_v2, cublasStatus_t, (cublasHandle_t handle, void* workspace, size_t num_bytes))  \
  X(cublasSetMathMode, cublasStatus_t, (cublasHandle_t handle, cublasMath_t mode))                      \
  X(cublasSgemm_v2, cublasStatus_t,                                                                     \
    (cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,        \
     const float* alpha, const float* a, int lda, const float* b, int ldb, const float* beta, float* c, \
     int ldc))                                                                                          \
  X(cublasSgemmStridedBatched, cublasStatus_t,                                                          \
    (cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k,        \
     const float* alpha, const float* a, int lda, long long a_stride, const float* b, int ldb,          \
     long long b_stride, const float* beta, float* c, int ldc, long long c_stride, int count))

// The table. Copyable; tests fill it with functions of their own.
struct CublasLibrary {
#define DDPRUN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  DDPRUN_CUBLAS_FUNCTIONS(DDPRUN_MEMBER)
#undef DDPRUN_MEMBER
};

// Opens libcublas.so.N, where N is the major version of the build's toolkit, once in a process; later calls return the same. It
// is never closed. If the process has a library of that name already, this is the one.
//   Errors:  kFailedPrecondition: the build had no CUDA toolkit; there is no library; it lacks a function, or is of another
//            major version. The message names the file, and the function or both versions, and what to do.
//   Threads: any.
StatusOr<const CublasLibrary*> OpenCublas();

// The parts of OpenCublas, for tests.
//   symbol: returns the address of the function, or null.
//   major:  the version of the build's toolkit.
StatusOr<CublasLibrary> ResolveCublas(FunctionRef<void*(const char* name)> symbol, int major);
Status CheckCublasVersion(const CublasLibrary& library, int major);

// The result of a call: "cublasSgemm on GPU 0: CUBLAS_STATUS_EXECUTION_FAILED".
//   Returns: OK for success; kResourceExhausted: the GPU's memory is used up; otherwise kInternal.
Status CublasStatus(const CublasLibrary& library, cublasStatus_t status, std::string_view call, int device);

}  // namespace ddprun::train
