// The kernels of the CUDA backend. They are launched through the driver API, by name.
//
//   Bits:      equal to those of the functions of the CPU that are named below, for equal inputs. Each operation is rounded
//              by itself: the BUILD file has -fmad=false, and exact division, square root and denormal numbers. GCC would
//              contract products on the CPU as well (-ffp-contract=fast is its default), but those functions are compiled
//              with -O3 for the base set of x86-64, which has no FMA instructions. They run in DefaultFloatingPointMode.
//              Exception: arithmetic whose result is a NaN returns 0x7FFFFFFF here, and other NaNs on a CPU.
//   Launch:    any grid and any block of one dimension: see grid.cuh.
//   Shapes:    `count` counts elements; it is >= 0 and may exceed 2^32. Pointers are device memory, aligned to their elements.
//   Aliasing:  parameters with __restrict__ do not overlap each other.
#include <cstdint>

#include "worker_sdk/device/cuda/grid.cuh"

namespace {

// The next four functions: see worker_sdk/comm/half.h. The instructions of GPUs lose the payload of a NaN.
__device__ uint16_t Float16Of(float value) {
  const uint32_t sign = __float_as_uint(value) & 0x80000000u;
  const uint32_t bits = __float_as_uint(value) ^ sign;
  const uint32_t huge = bits > 0x7F800000u ? 0x7E00u : 0x7C00u;
  const uint32_t tiny = __float_as_uint(__uint_as_float(bits) + 0.5f) - 0x3F000000u;
  const uint32_t normal = (bits + 0xC8000FFFu + ((bits >> 13) & 1u)) >> 13;
  const uint32_t result = bits >= 0x47800000u ? huge : bits < 0x38800000u ? tiny : normal;
  return static_cast<uint16_t>(result | (sign >> 16));
}

__device__ float FloatOfFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  const uint32_t exponent = shifted & 0x0F800000u;
  const uint32_t normal = shifted + 0x38000000u;
  const uint32_t huge = shifted + 0x70000000u;
  const uint32_t tiny = __float_as_uint(__uint_as_float(shifted + 0x38800000u) - 0x1p-14f);
  const uint32_t result = exponent == 0x0F800000u ? huge : exponent == 0 ? tiny : normal;
  return __uint_as_float(result | sign);
}

__device__ uint16_t BFloat16Of(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t nearest = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000u : nearest) >> 16);
}

__device__ float FloatOfBFloat16(uint16_t brain) {
  return __uint_as_float(static_cast<uint32_t>(brain) << 16);
}

// What the rounding of `exact` to `rounded` removed; 0 if `rounded` is not finite.
__device__ float RemovedBy(float exact, float rounded) {
  const bool finite = (__float_as_uint(rounded) & 0x7F800000u) != 0x7F800000u;
  return finite ? exact - rounded : 0.0f;
}

}  // namespace

extern "C" {

// out[i] = value
__global__ void FillFloat32(float* out, float value, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) out[i] = value;
}

// inout[i] *= factor
__global__ void ScaleFloat32(float* inout, float factor, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) inout[i] *= factor;
}

// inout[i] = inout[i] * factor + addend[i]: the product is rounded first.
__global__ void ScaleAddFloat32(float* __restrict__ inout, float factor, const float* __restrict__ addend,
                                int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) inout[i] = inout[i] * factor + addend[i];
}

// Multiply in worker_sdk/device/host/gradients.cc: the product is computed in float64 and then rounded to float32.
__global__ void MultiplyFloat32(float* inout, double factor, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride())
    inout[i] = static_cast<float>(static_cast<double>(inout[i]) * factor);
}

// Casts. To 16 bits: to the nearest value, ties to even; NaNs and infinities as in worker_sdk/comm/half.h. To float32: exact.
__global__ void CastFloat32ToFloat16(uint16_t* __restrict__ out, const float* __restrict__ in,
                                     int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) out[i] = Float16Of(in[i]);
}

__global__ void CastFloat16ToFloat32(float* __restrict__ out, const uint16_t* __restrict__ in,
                                     int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) out[i] = FloatOfFloat16(in[i]);
}

__global__ void CastFloat32ToBFloat16(uint16_t* __restrict__ out, const float* __restrict__ in,
                                      int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) out[i] = BFloat16Of(in[i]);
}

__global__ void CastBFloat16ToFloat32(float* __restrict__ out, const uint16_t* __restrict__ in,
                                      int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) out[i] = FloatOfBFloat16(in[i]);
}

// Compress in worker_sdk/device/host/gradients.cc: out[i] = in[i] / divisor + residual[i], rounded, and residual[i] = what the rounding
// removed.
//   Shapes: in, out, residual [count]. `residual` may be null; it then counts as zero.
__global__ void CompressFloat32ToFloat16(uint16_t* __restrict__ out, const float* __restrict__ in,
                                         float divisor, float* __restrict__ residual, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    float exact = in[i] / divisor;
    if (residual != nullptr) exact = exact + residual[i];
    out[i] = Float16Of(exact);
    if (residual != nullptr) residual[i] = RemovedBy(exact, FloatOfFloat16(out[i]));
  }
}

__global__ void CompressFloat32ToBFloat16(uint16_t* __restrict__ out, const float* __restrict__ in,
                                          float divisor, float* __restrict__ residual, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    float exact = in[i] / divisor;
    if (residual != nullptr) exact = exact + residual[i];
    out[i] = BFloat16Of(exact);
    if (residual != nullptr) residual[i] = RemovedBy(exact, FloatOfBFloat16(out[i]));
  }
}

// The sums of the squares of blocks of 4096 elements, as GlobalNorm of worker_sdk/device/host/gradients.h adds them: eight threads add
// the elements whose index in the block modulo 8 is theirs, in float64 and in order, and their sums are added as
// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). The first block may have begun in an earlier array, and the last one may go on in
// a later one: the sums of its eight threads are passed on.
//   Shapes:    in [count]; sums [(filled + count) / 4096], of the blocks that are complete; open_before, open_after [8].
//   filled:    elements in the open block before, < 4096. Their sums are at open_before, which is not read if filled is 0.
//   open_after: set to the sums of the open block, unless (filled + count) is a multiple of 4096.
//   REQUIRES:  the number of threads of a block is a multiple of 32.
__global__ void SumOfSquaresFloat32(double* __restrict__ sums, double* __restrict__ open_after,
                                    const double* __restrict__ open_before, int64_t filled,
                                    const float* __restrict__ in, int64_t count) {
  constexpr int64_t kBlock = 4096, kLanes = 8;
  const int64_t lane = threadIdx.x % kLanes;
  const unsigned lanes =
      0xFFu << (threadIdx.x % 32 / kLanes * kLanes);  // of this warp, those with the same block
  const int64_t end_of_all = filled + count;          // counted from the beginning of the first block
  const int64_t num_blocks = (end_of_all + kBlock - 1) / kBlock;
  for (int64_t block = FirstIndex() / kLanes; block < num_blocks; block += Stride() / kLanes) {
    const int64_t begin = block * kBlock;
    const int64_t end = end_of_all - begin < kBlock ? end_of_all : begin + kBlock;
    int64_t first = begin + lane;
    double sum = 0;
    if (block == 0 && filled > 0) {
      sum = open_before[lane];
      while (first < filled) first += kLanes;
    }
#pragma unroll 8
    for (int64_t i = first; i < end; i += kLanes) {
      const double x = in[i - filled];
      sum += x * x;
    }
    if (end - begin < kBlock) {
      open_after[lane] = sum;
    } else {
      for (int distance = 4; distance > 0; distance /= 2) sum += __shfl_xor_sync(lanes, sum, distance);
      if (lane == 0) sums[block] = sum;
    }
  }
}

// AdamWLoop in worker_sdk/device/host/updates.cc.
//   Shapes: params, m, v, grads [count].
__global__ void AdamWFloat32(float* __restrict__ params, float* __restrict__ m, float* __restrict__ v,
                             const float* __restrict__ grads, float rate, float epsilon, float keep,
                             float beta1, float beta2, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    m[i] = beta1 * m[i] + (1 - beta1) * grads[i];
    v[i] = beta2 * v[i] + (1 - beta2) * grads[i] * grads[i];
    params[i] = keep * params[i] - rate * m[i] / (sqrtf(v[i]) + epsilon);
  }
}

// SgdLoop in worker_sdk/device/host/updates.cc.
//   Shapes: params, v, grads [count]. `v` may be null: then there is no momentum.
__global__ void SgdFloat32(float* __restrict__ params, float* __restrict__ v, const float* __restrict__ grads,
                           float rate, float keep, float momentum, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    float change = grads[i];
    if (v != nullptr) {
      change = momentum * v[i] + grads[i];
      v[i] = change;
    }
    params[i] = keep * params[i] - rate * change;
  }
}

}  // extern "C"
