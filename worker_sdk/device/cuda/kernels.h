// The kernels of kernels.cu, compiled for GPUs.
#pragma once

#include <span>

namespace ddprun {

// The image for cuModuleLoadData, which finds the kernels by their names: a fatbin with machine code for sm_80 and sm_90,
// and PTX for newer GPUs. Empty if the build had no CUDA toolkit.
std::span<const unsigned char> KernelsImage();

}  // namespace ddprun
