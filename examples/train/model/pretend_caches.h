// For tests: what Eigen takes for the CPU's caches in the layers of each kind.
#pragma once

#include <cstddef>

namespace ddprun::train {

// As if this were a CPU with such caches, until the layers say otherwise.
void PretendBaselineCaches(std::ptrdiff_t l1, std::ptrdiff_t l2, std::ptrdiff_t l3);
void PretendAvx2Caches(std::ptrdiff_t l1, std::ptrdiff_t l2, std::ptrdiff_t l3);

}  // namespace ddprun::train
