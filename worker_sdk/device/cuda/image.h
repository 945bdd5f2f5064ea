// Kernels in the memory of a GPU: loads an image of cuda_fatbin (third_party/cuda/fatbin.bzl), and launches its kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ddprun/status.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// An image that is loaded into a context.
//   Threads: any, but one caller at a time for a stream.
class CudaImage {
 public:
  //   image:  for cuModuleLoadData; it must outlive the object. Blocks for seconds if the driver compiles PTX.
  //   Errors: kFailedPrecondition: the image is empty or has no code for the GPU; others: those of CudaStatus.
  static StatusOr<std::unique_ptr<const CudaImage>> Load(std::shared_ptr<const CudaContext> context,
                                                         std::span<const unsigned char> image);
  // Unloads the image, unless the device is lost. Blocks at most 1 s.
  ~CudaImage();
  CudaImage(const CudaImage&) = delete;
  CudaImage& operator=(const CudaImage&) = delete;

  // The kernel of this name. Find all kernels before the first launch: with CUDA_MODULE_LOADING=LAZY, the driver's default, this
  // loads the kernel, which may wait for the running ones.
  [[nodiscard]] StatusOr<CUfunction> Find(const char* name) const;

  // Puts the kernel into `stream`, on a grid of `num_threads` threads, or as many as the device runs at once. Does not block.
  // Nothing is launched for 0 threads.
  //   parameters: those of the kernel, with exactly its types.
  //   REQUIRES:   `stream` belongs to the context. The memory is used until the stream has done the work.
  //   Errors:     those of CudaStatus. The errors of the kernel itself are returned by later calls.
  template <typename... Parameters>
  Status Launch(CUfunction kernel, CUstream stream, int64_t num_threads, Parameters... parameters) const {
    void* addresses[] = {&parameters...};
    return LaunchWith(kernel, stream, num_threads, addresses);
  }

 private:
  CudaImage(std::shared_ptr<const CudaContext> context, CUmodule module);
  Status LaunchWith(CUfunction kernel, CUstream stream, int64_t num_threads, void** parameters) const;

  const std::shared_ptr<const CudaContext> context_;
  const CUmodule module_;
};

}  // namespace ddprun
