// Floating-point numbers of 16 bits: conversion from float32 to the nearest value, ties to even, and back, which is
// exact. A NaN stays a NaN. The results do not depend on whether the processor flushes denormal numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace ddprun {

// IEEE 754 binary16.
//   Source: F. Giesen, "float->half variants" (public domain); here without branches, so that loops over it are
//           vectorized.
inline uint16_t Float16Of(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) & 0x80000000u;
  const uint32_t bits = std::bit_cast<uint32_t>(value) ^ sign;
  // Infinity, NaN, and what is too large even before rounding.
  const uint32_t huge = bits > 0x7F800000u ? 0x7E00u : 0x7C00u;
  // Below 2^-14 the result is denormal: the addition of 0.5 aligns the bits and rounds them.
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3F000000u;
  // Otherwise: changes the exponent's bias from 127 to 15, and adds just under half of the last place, or half of it
  // if the last place is odd. The carry may reach the exponent, up to infinity.
  const uint32_t normal = (bits + 0xC8000FFFu + ((bits >> 13) & 1u)) >> 13;
  const uint32_t result = bits >= 0x47800000u ? huge : bits < 0x38800000u ? tiny : normal;
  return static_cast<uint16_t>(result | (sign >> 16));
}

inline float FloatOfFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  const uint32_t exponent = shifted & 0x0F800000u;
  const uint32_t normal = shifted + 0x38000000u;  // the bias changes from 15 to 127
  const uint32_t huge = shifted + 0x70000000u;    // infinity or NaN: the largest exponent stays the largest
  // Denormal: as if the leading bit were 1, less that bit's value, 2^-14.
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + 0x38800000u) - 0x1p-14f);
  const uint32_t result = exponent == 0x0F800000u ? huge : exponent == 0 ? tiny : normal;
  return std::bit_cast<float>(result | sign);
}

// bfloat16: the upper half of a float32.
inline uint16_t BFloat16Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nearest = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000u : nearest) >> 16);
}

inline float FloatOfBFloat16(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

}  // namespace ddprun
