// The CPU variants for which layers.cc is compiled. Only layers_dispatch.cc and tests call these functions.
#pragma once

#include "examples/train/model/layers.h"

namespace ddprun::train {

// For any CPU.
const Layers<float>& BaselineLayers(float);
const Layers<double>& BaselineLayers(double);

#if defined(__x86_64__)
// REQUIRES: the CPU has AVX2 and FMA.
const Layers<float>& Avx2Layers(float);
const Layers<double>& Avx2Layers(double);
#endif

}  // namespace ddprun::train
