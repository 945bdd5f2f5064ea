// Powers with integer exponents, without libm.
#pragma once

#include <cstdint>

namespace ddprun {

// Computes base^exponent by repeated squaring. std::pow is not used, because the last bit of its result may differ
// between machines.
//   REQUIRES: exponent >= 0.
inline double Power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

}  // namespace ddprun
