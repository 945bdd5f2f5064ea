#include "worker_sdk/comm/combine.h"

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "worker_sdk/comm/element.h"

namespace ddprun {
namespace {

// Signed overflow is undefined in C++, so integers are combined without sign, at least 32 bits wide.
template <typename T>
auto Wrapping(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>(x);
  } else {
    return x;
  }
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping(a) + Wrapping(b));
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping(a) * Wrapping(b));
  }
};
// If `b` is NaN, both comparisons are false and the result is b. If `a` is NaN, a != a.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

template <typename Kind, typename Op>
void Run(void* dst, const void* lhs, const void* rhs, size_t n, int divisor, Op op) {
  using Stored = typename Kind::Stored;
  using Value = typename Kind::Value;
  auto* out = static_cast<Stored*>(dst);
  const auto* a = static_cast<const Stored*>(lhs);
  const auto* b = static_cast<const Stored*>(rhs);
  if (divisor == 1) {
    for (size_t i = 0; i < n; ++i) out[i] = Kind::Store(op(Kind::Load(a[i]), Kind::Load(b[i])));
    return;
  }
  if constexpr (std::is_floating_point_v<Value>) {
    const auto by = static_cast<Value>(divisor);
    if (std::has_single_bit(static_cast<unsigned>(divisor))) {
      const Value inverse = 1 / by;  // exact, so the product has the bits of the quotient
      for (size_t i = 0; i < n; ++i) out[i] = Kind::Store(op(Kind::Load(a[i]), Kind::Load(b[i])) * inverse);
      return;
    }
    for (size_t i = 0; i < n; ++i) out[i] = Kind::Store(op(Kind::Load(a[i]), Kind::Load(b[i])) / by);
  } else {
    DDPRUN_CHECK(false, "a mean of integers");
  }
}

template <typename Kind>
void RunOn(ReduceOp op, void* dst, const void* lhs, const void* rhs, size_t n, int divisor) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return Run<Kind>(dst, lhs, rhs, n, divisor, Add{});
    case ReduceOp::kMin:
      return Run<Kind>(dst, lhs, rhs, n, divisor, Min{});
    case ReduceOp::kMax:
      return Run<Kind>(dst, lhs, rhs, n, divisor, Max{});
    case ReduceOp::kProduct:
      return Run<Kind>(dst, lhs, rhs, n, divisor, Multiply{});
  }
  DDPRUN_CHECK(false, "an unknown reduction");
}

}  // namespace

void Combine(Reduction reduction, void* dst, const void* lhs, const void* rhs, size_t n, int divisor) {
  WithFormat(reduction.dtype,
             [&]<typename Format>(Format) { RunOn<Format>(reduction.op, dst, lhs, rhs, n, divisor); });
}

}  // namespace ddprun
