// How reductions read and write elements: each format has the type in memory and the type to compute with.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/half.h"

namespace ddprun {

template <typename T>
struct PlainElement {
  using Stored = T;
  using Value = T;
  static Value Load(Stored x) { return x; }
  static Stored Store(Value x) { return x; }
};
struct Float16Element {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored x) { return FloatOfFloat16(x); }
  static Stored Store(Value x) { return Float16Of(x); }
};
struct BFloat16Element {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored x) { return FloatOfBFloat16(x); }
  static Stored Store(Value x) { return BFloat16Of(x); }
};

// Returns f(Format()), where Format is that of `dtype`.
//   REQUIRES: `dtype` is one of the values of DType; f returns the same type for all formats.
template <typename F>
auto WithFormat(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(PlainElement<float>());
    case DType::kFloat64:
      return f(PlainElement<double>());
    case DType::kFloat16:
      return f(Float16Element());
    case DType::kBFloat16:
      return f(BFloat16Element());
    case DType::kInt32:
      return f(PlainElement<int32_t>());
    case DType::kInt64:
      return f(PlainElement<int64_t>());
    case DType::kUInt8:
      return f(PlainElement<uint8_t>());
  }
  DDPRUN_CHECK(false, "an unknown dtype");
  return f(PlainElement<uint8_t>());
}

}  // namespace ddprun
