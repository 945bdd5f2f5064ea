#include "examples/train/gpu/products.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

constexpr Duration kDestroyLimit = seconds(1);
// What NVIDIA recommends for sm_90; older GPUs need 4 MiB.
constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr float kOne = 1, kZero = 0;

cublasOperation_t OperationOf(const Factor& factor) {
  return factor.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

int AsInt(int64_t value) {
  DDPRUN_CHECK(value >= 1 && value <= INT32_MAX, "a dimension of a product is " << value);
  return static_cast<int>(value);
}

}  // namespace

Products::Products(std::shared_ptr<const CudaContext> context, const CublasLibrary* cublas)
    : context_(std::move(context)), cublas_(cublas) {}

StatusOr<std::unique_ptr<Products>> Products::Create(std::shared_ptr<const CudaContext> context,
                                                     const CublasLibrary* cublas, CUstream stream) {
  std::unique_ptr<Products> products(new Products(context, cublas));
  DDPRUN_ASSIGN_OR_RETURN(products->workspace_, DeviceMemory::Allocate(context, kWorkspaceBytes),
                          "the workspace of cuBLAS");
  const CudaScope scope(*context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  DDPRUN_RETURN_IF_ERROR(products->Check(cublas->cublasCreate_v2(&products->handle_), "cublasCreate"));
  cublasHandle_t const handle = products->handle_;
  // In this order, because cublasSetStream resets the workspace.
  DDPRUN_RETURN_IF_ERROR(products->Check(cublas->cublasSetStream_v2(handle, stream), "cublasSetStream"));
  DDPRUN_RETURN_IF_ERROR(
      products->Check(cublas->cublasSetWorkspace_v2(handle, products->workspace_.data(), kWorkspaceBytes),
                      "cublasSetWorkspace"));
  DDPRUN_RETURN_IF_ERROR(
      products->Check(cublas->cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "cublasSetMathMode"));
  return products;
}

Products::~Products() {
  if (handle_ == nullptr) return;
  context_->Destroy([cublas = cublas_, handle = handle_] { (void)cublas->cublasDestroy_v2(handle); },
                    kDestroyLimit);
}

Status Products::Check(cublasStatus_t status, const char* call) const {
  return CublasStatus(*cublas_, status, call, context_->index());
}

// cuBLAS is column-major: it sees the transposes of all matrices, and the product of the transposes in the other order.
Status Products::Multiply(const Result& result, const Factor& left, const Factor& right,
                          const ProductShape& shape) {
  const CudaScope scope(*context_);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return Check(
      cublas_->cublasSgemm_v2(handle_, OperationOf(right), OperationOf(left), AsInt(shape.columns),
                              AsInt(shape.rows), AsInt(shape.depth), &kOne, right.data, AsInt(right.stride),
                              left.data, AsInt(left.stride), &kZero, result.data, AsInt(result.stride)),
      "cublasSgemm");
}

Status Products::MultiplyBatch(const Result& result, const Factor& left, const Factor& right,
                               const ProductShape& shape, int64_t count) {
  const CudaScope scope(*context_);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return Check(cublas_->cublasSgemmStridedBatched(
                   handle_, OperationOf(right), OperationOf(left), AsInt(shape.columns), AsInt(shape.rows),
                   AsInt(shape.depth), &kOne, right.data, AsInt(right.stride), right.batch_stride, left.data,
                   AsInt(left.stride), left.batch_stride, &kZero, result.data, AsInt(result.stride),
                   result.batch_stride, AsInt(count)),
               "cublasSgemmStridedBatched");
}

}  // namespace ddprun::train
