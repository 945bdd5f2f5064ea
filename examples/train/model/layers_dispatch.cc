#include <string_view>

#include "examples/train/model/layers.h"
#include "examples/train/model/layers_variants.h"

namespace ddprun::train {

namespace {

#if defined(__x86_64__)
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

}  // namespace

template <typename T>
T* Scratch<T>::Get(int64_t num_elems) {
  if (static_cast<size_t>(num_elems) > buffer_.size()) buffer_ = Buffer<T>(num_elems);
  return buffer_.data();
}

template <typename T>
const Layers<T>& LayersForThisCpu() {
#if defined(__x86_64__)
  if (HasAvx2()) return Avx2Layers(T());
#endif
  return BaselineLayers(T());
}

template <typename T>
const Layers<T>* LayersFor(std::string_view cpu) {
  if (cpu == "auto") return &LayersForThisCpu<T>();
  if (cpu == "baseline") return &BaselineLayers(T());
#if defined(__x86_64__)
  if (cpu == "avx2" && HasAvx2()) return &Avx2Layers(T());
#endif
  return nullptr;
}

template class Scratch<float>;
template class Scratch<double>;
template const Layers<float>& LayersForThisCpu<float>();
template const Layers<double>& LayersForThisCpu<double>();
template const Layers<float>* LayersFor<float>(std::string_view);
template const Layers<double>* LayersFor<double>(std::string_view);

}  // namespace ddprun::train
