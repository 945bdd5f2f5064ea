// How reductions read and write elements: each format has the type in memory and the type to compute with.
#pragma once

#include <cstdint>

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

}  // namespace ddprun
