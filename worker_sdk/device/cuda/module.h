// Launches the kernels of kernels.cu, which says what they compute.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/image.h"
#include "worker_sdk/device/host/updates.h"

namespace ddprun {

// The kernels, loaded into a context. Each function puts one kernel into `stream`, and does not block.
//   Shapes:   `count` counts elements and is >= 0; nothing is launched for 0. Pointers are memory of the device, aligned to their
//             elements, with `count` elements unless the function says otherwise. Arrays of one call do not overlap.
//   REQUIRES: `stream` belongs to the context. The memory is used until the stream has done the work.
//   Errors:   those of CudaStatus. The errors of a kernel itself are returned by later calls.
//   Threads:  any, but one caller at a time for a stream.
class CudaKernels {
 public:
  // Loads the image of the kernels, once for each context: later calls return the same object while it is used. Blocks and
  // fails as CudaImage::Load.
  static StatusOr<std::shared_ptr<const CudaKernels>> Load(std::shared_ptr<const CudaContext> context,
                                                           std::span<const unsigned char> image);
  // out[i] = value
  Status Fill(CUstream stream, float* out, float value, int64_t count) const;
  // inout[i] *= factor
  Status Scale(CUstream stream, float* inout, float factor, int64_t count) const;
  // inout[i] *= factor, in float64, and then rounded
  Status Multiply(CUstream stream, float* inout, double factor, int64_t count) const;
  // inout[i] = inout[i] * factor + addend[i]
  Status ScaleAdd(CUstream stream, float* inout, float factor, const float* addend, int64_t count) const;

  // Casts; float16 and bfloat16 are passed as their bits.
  Status CastToFloat16(CUstream stream, uint16_t* out, const float* in, int64_t count) const;
  Status CastFromFloat16(CUstream stream, float* out, const uint16_t* in, int64_t count) const;
  Status CastToBFloat16(CUstream stream, uint16_t* out, const float* in, int64_t count) const;
  Status CastFromBFloat16(CUstream stream, float* out, const uint16_t* in, int64_t count) const;

  // out[i] = in[i] / divisor + residual[i], rounded; residual[i] = what the rounding removed. `residual` may be null.
  Status CompressToFloat16(CUstream stream, uint16_t* out, const float* in, float divisor, float* residual,
                           int64_t count) const;
  Status CompressToBFloat16(CUstream stream, uint16_t* out, const float* in, float divisor, float* residual,
                            int64_t count) const;

  // Sums of squares of blocks of 4096 elements of several arrays, one after the other, as if they were one array. The last
  // block of an array stays open, as eight sums, and the next array continues it.
  //   Shapes: sums [(filled + count) / 4096]; open_before, open_after [8].
  //   filled: the elements in the open block before, < 4096; their sums are at open_before.
  static constexpr int64_t kSumBlock = 4096;
  static constexpr int64_t kOpenSums = 8;
  Status SumOfSquares(CUstream stream, double* sums, double* open_after, const double* open_before,
                      int64_t filled, const float* in, int64_t count) const;

  // AdamWLoop and SgdLoop of worker_sdk/device/host/updates.h.
  Status AdamW(CUstream stream, float* params, float* m, float* v, const float* grads,
               const AdamWScalars<float>& scalars, int64_t count) const;
  // `v` is null if there is no momentum.
  Status Sgd(CUstream stream, float* params, float* v, const float* grads, const SgdScalars& scalars,
             int64_t count) const;

 private:
  struct Functions {
    CUfunction fill, scale, scale_add, multiply;
    CUfunction cast_to_float16, cast_from_float16, cast_to_bfloat16, cast_from_bfloat16;
    CUfunction compress_to_float16, compress_to_bfloat16;
    CUfunction sum_of_squares, adamw, sgd;
  };

  explicit CudaKernels(std::unique_ptr<const CudaImage> image) : image_(std::move(image)) {}
  Status FindFunctions();

  const std::unique_ptr<const CudaImage> image_;
  Functions functions_ = {};
};

}  // namespace ddprun
