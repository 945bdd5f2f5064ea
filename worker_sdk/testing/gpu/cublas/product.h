// Matrix products as the CPU computes them for `train`, by a short loop.
#pragma once

#include <cstdint>

namespace ddprun::stand_in {

// A factor, column by column; `is_transposed`: the transpose of what is in memory.
struct Factor {
  const float* data;
  int64_t stride;  // from a column in memory to the next one
  bool is_transposed;

  float at(int64_t row, int64_t column) const {
    return is_transposed ? data[column + row * stride] : data[row + column * stride];
  }
};

struct Scale {
  float alpha, beta;
};

// out [rows,columns] = alpha * left [rows,depth] * right [depth,columns] + beta * out. If beta is 0, `out` is not read.
//   Order: each element is one chain of multiplications and additions from the first k on, with fused operations if the
//          processor has AVX2 and FMA: as in examples/train/model/matrix.h. Chains are cut at multiples of `piece`, and the
//          sums of the pieces are added one after the other.
void Multiply(float* out, int64_t stride, const Factor& left, const Factor& right, int64_t rows,
              int64_t columns, int64_t depth, int64_t piece, Scale scale);

}  // namespace ddprun::stand_in
