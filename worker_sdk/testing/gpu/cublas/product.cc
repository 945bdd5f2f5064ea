#include "worker_sdk/testing/gpu/cublas/product.h"

#include <algorithm>
#include <vector>

namespace ddprun::stand_in {
namespace {

// sums[i] += column[i] * factor
using AddProducts = void (*)(float* sums, const float* column, float factor, int64_t rows);

void AddRounded(float* sums, const float* column, float factor, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) sums[i] += column[i] * factor;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void AddFused(float* sums, const float* column, float factor,
                                                  int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) sums[i] = __builtin_fmaf(column[i], factor, sums[i]);
}
#endif

AddProducts ForThisCpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AddFused;
#endif
  return AddRounded;
}

}  // namespace

void Multiply(float* out, int64_t stride, const Factor& left, const Factor& right, int64_t rows,
              int64_t columns, int64_t depth, int64_t piece, Scale scale) {
  static const AddProducts add_products = ForThisCpu();
  std::vector<float> lefts(rows * depth);  // column by column
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < rows; ++i) lefts[k * rows + i] = left.at(i, k);
  }
  std::vector<float> sums(rows), total(rows);
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t first = 0; first < depth; first += piece) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t k = first; k < std::min(first + piece, depth); ++k)
        add_products(sums.data(), lefts.data() + k * rows, right.at(k, j), rows);
      if (first == 0) {
        total = sums;
      } else {
        for (int64_t i = 0; i < rows; ++i) total[i] += sums[i];
      }
    }
    float* const result = out + j * stride;
    for (int64_t i = 0; i < rows; ++i) {
      const float product = scale.alpha * total[i];
      result[i] = scale.beta == 0 ? product : product + scale.beta * result[i];
    }
  }
}

}  // namespace ddprun::stand_in
