#include "examples/train/layers.h"
#include "examples/train/layers_variants.h"

namespace ddprun::train {

template <typename T>
const Layers<T>& LayersForThisCpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Avx2Layers(T());
#endif
  return BaselineLayers(T());
}

template const Layers<float>& LayersForThisCpu<float>();
template const Layers<double>& LayersForThisCpu<double>();

}  // namespace ddprun::train
