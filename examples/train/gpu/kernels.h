// The kernels of kernels.cu, compiled for GPUs.
#pragma once

#include <span>

namespace ddprun {

// The image for CudaImage. Empty if the build had no CUDA toolkit.
std::span<const unsigned char> ModelKernelsImage();

}  // namespace ddprun
