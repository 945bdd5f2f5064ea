// For tests: overrides the cache sizes that Eigen assumes in the layers of each CPU variant.
#pragma once

#include <cstddef>

namespace ddprun::train {

// Sizes in bytes. They are effective until the layers set their own sizes.
void PretendBaselineCaches(std::ptrdiff_t l1, std::ptrdiff_t l2, std::ptrdiff_t l3);
void PretendAvx2Caches(std::ptrdiff_t l1, std::ptrdiff_t l2, std::ptrdiff_t l3);

}  // namespace ddprun::train
