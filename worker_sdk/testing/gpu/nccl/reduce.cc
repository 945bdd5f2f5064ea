#include "worker_sdk/testing/gpu/nccl/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "worker_sdk/comm/element.h"

namespace ddprun::stand_in {
namespace {

template <typename T>
T Combine(ncclRedOp_t op, T a, T b) {
  // Integers overflow without an error. Small ones are computed in 64 bits, where the product has no signed overflow.
  if constexpr (std::is_integral_v<T>) {
    if (op == ncclSum || op == ncclAvg)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == ncclProd) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

template <typename Type>
void ReduceAs(ncclRedOp_t op, size_t count, std::span<const std::byte* const> inputs, std::byte* out) {
  using Value = typename Type::Value;
  using Stored = typename Type::Stored;
  constexpr bool kDivideFirst = std::is_floating_point_v<Value>;
  const auto ranks = static_cast<Value>(inputs.size());
  const auto load = [&](const std::byte* input, size_t i) {
    Stored stored;
    std::memcpy(&stored, input + i * sizeof stored, sizeof stored);
    const Value value = Type::Load(stored);
    return op == ncclAvg && kDivideFirst ? Type::Load(Type::Store(value / ranks)) : value;
  };
  for (size_t i = 0; i < count; ++i) {
    Value result = load(inputs[0], i);
    for (const std::byte* input : inputs.subspan(1))
      result = Type::Load(Type::Store(Combine(op, result, load(input, i))));
    if (op == ncclAvg && !kDivideFirst) result /= ranks;
    const Stored stored = Type::Store(result);
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

size_t SizeOf(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

bool CanReduce(ncclDataType_t dtype, ncclRedOp_t op) {
  return SizeOf(dtype) != 0 && dtype != ncclFloat8e4m3 && dtype != ncclFloat8e5m2 && op >= ncclSum &&
         op <= ncclAvg;
}

void Reduce(ncclDataType_t dtype, ncclRedOp_t op, size_t count, std::span<const std::byte* const> inputs,
            std::byte* out) {
  switch (dtype) {
    case ncclInt8:
      return ReduceAs<PlainElement<int8_t>>(op, count, inputs, out);
    case ncclUint8:
      return ReduceAs<PlainElement<uint8_t>>(op, count, inputs, out);
    case ncclInt32:
      return ReduceAs<PlainElement<int32_t>>(op, count, inputs, out);
    case ncclUint32:
      return ReduceAs<PlainElement<uint32_t>>(op, count, inputs, out);
    case ncclInt64:
      return ReduceAs<PlainElement<int64_t>>(op, count, inputs, out);
    case ncclUint64:
      return ReduceAs<PlainElement<uint64_t>>(op, count, inputs, out);
    case ncclFloat16:
      return ReduceAs<Float16Element>(op, count, inputs, out);
    case ncclBfloat16:
      return ReduceAs<BFloat16Element>(op, count, inputs, out);
    case ncclFloat32:
      return ReduceAs<PlainElement<float>>(op, count, inputs, out);
    case ncclFloat64:
      return ReduceAs<PlainElement<double>>(op, count, inputs, out);
    default:
      return;
  }
}

}  // namespace ddprun::stand_in
