#include "worker_sdk/comm/testing/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>

#include "worker_sdk/comm/element.h"

namespace ddprun {
namespace {

template <typename V>
V Apply(ReduceOp op, V a, V b) {
  V result{};
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      if constexpr (std::is_integral_v<V>) {
        (void)__builtin_add_overflow(a, b, &result);
        return result;
      }
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      if constexpr (std::is_integral_v<V>) {
        (void)__builtin_mul_overflow(a, b, &result);
        return result;
      }
      return a * b;
  }
  return result;
}

// Element `i` of the reduction over ranks lo..hi - 1, as stored.
template <typename Format>
typename Format::Stored Node(ReduceOp op, const std::vector<std::vector<char>>& inputs, size_t i, size_t lo,
                             size_t hi) {
  using Stored = typename Format::Stored;
  if (hi - lo == 1) {
    Stored leaf;
    std::memcpy(&leaf, inputs[lo].data() + i * sizeof(leaf), sizeof(leaf));
    return leaf;
  }
  size_t power = 1;
  while (2 * power < hi - lo) power *= 2;
  const auto left = Format::Load(Node<Format>(op, inputs, i, lo, lo + power));
  const auto right = Format::Load(Node<Format>(op, inputs, i, lo + power, hi));
  auto value = Apply(op, left, right);
  if (op == ReduceOp::kMean && hi - lo == inputs.size()) value /= static_cast<decltype(value)>(inputs.size());
  return Format::Store(value);
}

}  // namespace

bool IsDefined(DType dtype, ReduceOp op) {
  return op != ReduceOp::kMean ||
         (dtype != DType::kInt32 && dtype != DType::kInt64 && dtype != DType::kUInt8);
}

std::vector<char> RandomElements(DType dtype, uint64_t seed, size_t n) {
  return WithFormat(dtype, [&]<typename Format>(Format) {
    using Stored = typename Format::Stored;
    using Value = typename Format::Value;
    std::mt19937_64 random(seed);
    std::vector<char> bytes(n * sizeof(Stored));
    for (size_t i = 0; i < n; ++i) {
      Value value;
      if constexpr (std::is_integral_v<Value>) {
        value = static_cast<Value>(random());
      } else {
        // 16-bit numbers are small, so that sums and products of 8 ranks stay finite.
        const int magnitude = static_cast<int>(random() % (sizeof(Stored) == 2 ? 3 : 24));
        value = std::ldexp(static_cast<Value>(static_cast<int32_t>(random() >> 32)), magnitude - 32);
      }
      const Stored stored = Format::Store(value);
      std::memcpy(bytes.data() + i * sizeof(stored), &stored, sizeof(stored));
    }
    return bytes;
  });
}

std::vector<char> ReferenceReduction(DType dtype, ReduceOp op, const std::vector<std::vector<char>>& inputs) {
  return WithFormat(dtype, [&]<typename Format>(Format) {
    std::vector<char> result(inputs[0].size());
    for (size_t i = 0; i < result.size() / sizeof(typename Format::Stored); ++i) {
      const auto element = Node<Format>(op, inputs, i, 0, inputs.size());
      std::memcpy(result.data() + i * sizeof(element), &element, sizeof(element));
    }
    return result;
  });
}

}  // namespace ddprun
