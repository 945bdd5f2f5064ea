// The functions of cuBLAS.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "worker_sdk/testing/gpu/cublas/declarations.h"
#include "worker_sdk/testing/gpu/cublas/handle.h"
#include "worker_sdk/testing/gpu/cublas/product.h"
#include "worker_sdk/testing/gpu/misuse.h"
#include "worker_sdk/testing/gpu/settings.h"

using ddprun::stand_in::Factor;
using ddprun::stand_in::Handle;
using ddprun::stand_in::Handles;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::Multiply;
using ddprun::stand_in::Region;
using ddprun::stand_in::Scale;
using ddprun::stand_in::TheDriver;
using ddprun::stand_in::TheSettings;

namespace {

// The pieces of chains of a single product are those of examples/train/model/matrix.h. Batches compute products of one
// sequence, whose chains are not cut there.
constexpr int64_t kPiece = 256;

constexpr size_t kWorkspaceAlignment = 256;

// An operand of a batch: `count` matrices, `batch_stride` elements apart, of columns that are `stride` apart.
struct Operand {
  const char* name;
  const float* data;
  int64_t rows, columns;  // in memory
  int64_t stride;
  int64_t batch_stride;

  size_t Bytes(int64_t count) const {
    return sizeof(float) * static_cast<size_t>((count - 1) * batch_stride + (columns - 1) * stride + rows);
  }
};

bool Overlap(const Operand& a, const Operand& b, int64_t count) {
  const auto* const a_begin = reinterpret_cast<const std::byte*>(a.data);
  const auto* const b_begin = reinterpret_cast<const std::byte*>(b.data);
  return a_begin < b_begin + b.Bytes(count) && b_begin < a_begin + a.Bytes(count);
}

cublasStatus_t Queue(const char* call, cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op,
                     int64_t m, int64_t n, int64_t k, Scale scale, Operand a, Operand b, Operand c,
                     int64_t count, int64_t piece) {
  const std::shared_ptr<Handle> found = Handles::Get().Find(call, handle);
  if (m < 0 || n < 0 || k < 0 || count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (m == 0 || n == 0 || k == 0 || count == 0)
    Misuse(call, ": an empty product: ", m, " x ", n, " x ", k, ", ", count, " times");
  if (a_op == CUBLAS_OP_T) std::swap(a.rows, a.columns);
  if (b_op == CUBLAS_OP_T) std::swap(b.rows, b.columns);
  for (const Operand& o : {a, b, c}) {
    if (o.stride < o.rows)
      Misuse(call, ": the leading dimension of ", o.name, " is ", o.stride, ", its columns have ", o.rows);
  }
  for (const Operand& o : {a, b}) {
    if (Overlap(o, c, count)) Misuse(call, ": the result overlaps ", o.name);
  }
  if (found->stream == nullptr) Misuse(call, ": on the default stream");
  const auto queue = TheDriver().QueueOf(call, found->stream);
  const auto use = [&](const Operand& o) {
    return TheDriver().Use(call, found->device, o.data, o.Bytes(count));
  };
  const Region a_used = use(a), b_used = use(b), c_used = use(c);
  const Region workspace = TheDriver().Use(call, found->device, found->workspace, found->workspace_bytes);
  queue->Push(call, [=](bool lost) {
    if (lost) return;
    if (workspace.view != nullptr) std::memset(workspace.view, 0xFF, kWorkspaceAlignment);
    const auto* const lefts = reinterpret_cast<const float*>(a_used.view);
    const auto* const rights = reinterpret_cast<const float*>(b_used.view);
    auto* const results = reinterpret_cast<float*>(c_used.view);
    for (int64_t i = 0; i < count; ++i) {
      Multiply(results + i * c.batch_stride, c.stride,
               Factor{lefts + i * a.batch_stride, a.stride, a_op == CUBLAS_OP_T},
               Factor{rights + i * b.batch_stride, b.stride, b_op == CUBLAS_OP_T}, m, n, k, piece, scale);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  const int chosen = TheSettings().cublas_version;
  switch (type) {
    case MAJOR_VERSION:
      *value = chosen == 0 ? CUBLAS_VER_MAJOR : chosen;
      return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = CUBLAS_VER_MINOR;
      return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = CUBLAS_VER_PATCH;
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  const int device = TheDriver().CurrentDevice();
  if (device < 0) Misuse(__func__, ": the thread has no current context");
  *handle = Handles::Get().Add(device);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  (void)Handles::Get().Find(__func__, handle);
  Handles::Get().Remove(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// As in cuBLAS, the workspace is that of cuBLAS again.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  const std::shared_ptr<Handle> found = Handles::Get().Find(__func__, handle);
  const int device = TheDriver().QueueOf(__func__, stream)->device();
  if (device != found->device)
    Misuse(__func__, ": the stream is of device ", device, ", the handle of device ", found->device);
  *found = {.device = device, .stream = stream};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  const std::shared_ptr<Handle> found = Handles::Get().Find(__func__, handle);
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0 || bytes < kWorkspaceAlignment)
    return CUBLAS_STATUS_INVALID_VALUE;
  (void)TheDriver().Use(__func__, found->device, workspace, bytes);
  found->workspace = workspace;
  found->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  (void)Handles::Get().Find(__func__, handle);
  if (mode != CUBLAS_DEFAULT_MATH && mode != CUBLAS_PEDANTIC_MATH)
    Misuse(__func__, ": mode ", static_cast<int>(mode), " rounds the factors");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                              int n, int k, const float* alpha, const float* a, int lda, const float* b,
                              int ldb, const float* beta, float* c, int ldc) {
  return Queue(__func__, handle, a_op, b_op, m, n, k, {*alpha, *beta}, {"A", a, m, k, lda, 0},
               {"B", b, k, n, ldb, 0}, {"C", c, m, n, ldc, 0}, 1, kPiece);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t a_op,
                                         cublasOperation_t b_op, int m, int n, int k, const float* alpha,
                                         const float* a, int lda, long long a_stride,  // NOLINT: as in CUDA
                                         const float* b, int ldb, long long b_stride,  // NOLINT
                                         const float* beta, float* c, int ldc,
                                         long long c_stride,  // NOLINT
                                         int count) {
  return Queue(__func__, handle, a_op, b_op, m, n, k, {*alpha, *beta}, {"A", a, m, k, lda, a_stride},
               {"B", b, k, n, ldb, b_stride}, {"C", c, m, n, ldc, c_stride}, count, k > 0 ? k : 1);
}

}  // extern "C"
