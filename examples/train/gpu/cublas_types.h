// The types of cublas_v2.h. Without a CUDA toolkit, those that are used here: the same code is compiled in both cases, and only
// OpenCublas is different.
#pragma once

#include "worker_sdk/device/cuda/cuda_types.h"

#ifdef DDPRUN_HAVE_CUDA

#include <cublas_v2.h>

#else

using cublasHandle_t = struct cublasContext*;
using cudaStream_t = CUstream;

// Names and numbers are those of cublas_api.h and library_types.h. A library may return any other number.
enum cublasStatus_t : unsigned { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 };
enum cublasOperation_t : unsigned { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasMath_t : unsigned { CUBLAS_DEFAULT_MATH = 0 };
enum libraryPropertyType : unsigned { MAJOR_VERSION = 0 };

#endif  // DDPRUN_HAVE_CUDA
