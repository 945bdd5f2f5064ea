// The kernels of worker_sdk/device/cuda/kernels.cu and those of the program under test, computed by the processor.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "worker_sdk/testing/gpu/driver.h"

namespace ddprun::stand_in {

// The memory that begins at an address of the device.
using Resolve = std::function<Region(const void* address)>;

struct Kernel {
  std::string_view name;
  unsigned block_multiple = 1;  // a launch must have a multiple of so many threads in a block
  // Copies the arguments, as cuLaunchKernel does. The result computes the kernel, and holds the memory of its pointers.
  std::function<std::function<void()>(void** parameters, const Resolve& resolve)> bind;
};

// Adds the kernels of a program: a static object of a library that is linked into the libcuda.so.1 for that program.
struct AddedKernels {
  explicit AddedKernels(std::vector<Kernel> kernels);
};

// nullptr if there is no such kernel.
const Kernel* FindKernel(std::string_view name);

}  // namespace ddprun::stand_in
