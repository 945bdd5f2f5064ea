// Products of matrices in the memory of a GPU, through cuBLAS: in float32, without TF32.
#pragma once

#include <cstdint>
#include <memory>

#include "ddprun/status.h"
#include "examples/train/gpu/cublas.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/memory.h"

namespace ddprun::train {

// A row-major factor. `is_transposed`: the transpose of what is in memory.
struct Factor {
  const float* data;
  int64_t stride;  // from a row in memory to the next one
  bool is_transposed = false;
  int64_t batch_stride = 0;  // from a matrix of a batch to the next one
};
struct Result {
  float* data;
  int64_t stride;
  int64_t batch_stride = 0;
};
// Each at most 2^31 - 1, and at least 1.
struct ProductShape {
  int64_t rows, columns, depth;
};

// A handle of cuBLAS for one stream. Nothing blocks; the memory is used until the stream has done the work.
//   Errors:     those of CublasStatus. The errors of the work itself are returned by later calls for the GPU.
//   Threads:    one caller at a time.
//   Destructor: REQUIRES: the stream is idle, or the device is lost. Blocks at most 1 s if the driver does.
class Products {
 public:
  // Allocates a workspace, so that cuBLAS allocates nothing while kernels run.
  //   stream: belongs to the context, and must outlive the object.
  //   Errors: also those of DeviceMemory::Allocate.
  static StatusOr<std::unique_ptr<Products>> Create(std::shared_ptr<const CudaContext> context,
                                                    const CublasLibrary* cublas, CUstream stream);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // result [rows,columns] = left [rows,depth] * right [depth,columns]. The result overlaps no factor.
  Status Multiply(const Result& result, const Factor& left, const Factor& right, const ProductShape& shape);
  // The same for each matrix of a batch of `count`.
  Status MultiplyBatch(const Result& result, const Factor& left, const Factor& right,
                       const ProductShape& shape, int64_t count);

 private:
  Products(std::shared_ptr<const CudaContext> context, const CublasLibrary* cublas);
  [[nodiscard]] Status Check(cublasStatus_t status, const char* call) const;

  const std::shared_ptr<const CudaContext> context_;
  const CublasLibrary* const cublas_;
  DeviceMemory workspace_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace ddprun::train
