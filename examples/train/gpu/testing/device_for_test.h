// The first GPU for a test: the stand-in's, or a real one if the test runs without the stand-in (tools/dev gpu).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/driver.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun::train {

class DeviceForTest {
 public:
  // An error if there is no GPU. A test must then skip itself, except in the ordinary tests, which have the stand-in.
  static bool MayBeMissing() {
#ifdef DDPRUN_HAVE_CUDA
    return std::getenv("DDPRUN_STAND_IN_DEVICES") == nullptr;
#else
    return true;
#endif
  }
  static StatusOr<std::unique_ptr<DeviceForTest>> Open() {
    DDPRUN_ASSIGN_OR_RETURN(const CudaDriver* const driver, OpenCudaDriver());
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<const CudaContext> context, CudaContext::Open(driver, 0));
    DDPRUN_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create(context));
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, ListCudaDevices(*driver));
    const bool is_stand_in = devices[0].name.starts_with("Stand-in ");
    return std::unique_ptr<DeviceForTest>(
        new DeviceForTest(std::move(context), std::move(stream), is_stand_in));
  }
  ~DeviceForTest() {
    EXPECT_EQ(stream_.Await(DeadlineAfter(seconds(30)), "the work of the test"), OkStatus());
  }

  [[nodiscard]] const std::shared_ptr<const CudaContext>& context() const { return context_; }
  [[nodiscard]] CUstream stream() const { return stream_.get(); }
  // A real GPU rounds in another order than the CPU; the stand-in computes the CPU's bits.
  [[nodiscard]] bool is_stand_in() const { return is_stand_in_; }

  // Memory with these values, which are there for work that is put into stream() later. Freed with this object.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    const int64_t num_bytes = static_cast<int64_t>(values.size() * sizeof(T));
    memory_.push_back(DeviceMemory::Allocate(context_, num_bytes).value());
    pinned_.push_back(PinnedMemory::Allocate(context_, num_bytes).value());
    std::memcpy(pinned_.back().data(), values.data(), num_bytes);
    EXPECT_EQ(CopyToDevice(*context_, memory_.back().data(), pinned_.back().data(), num_bytes, stream()),
              OkStatus());
    return static_cast<T*>(memory_.back().data());
  }
  // The values after the work that is in `stream` now.
  template <typename T>
  std::vector<T> Get(const T* at, int64_t count, CUstream stream) const {
    const int64_t num_bytes = count * static_cast<int64_t>(sizeof(T));
    const PinnedMemory pinned = PinnedMemory::Allocate(context_, num_bytes).value();
    EXPECT_EQ(CopyToHost(*context_, pinned.data(), at, num_bytes, stream), OkStatus());
    const CudaScope scope(*context_);
    EXPECT_EQ(context_->Check(context_->driver().cuStreamSynchronize(stream), "cuStreamSynchronize"),
              OkStatus());
    std::vector<T> values(count);
    std::memcpy(values.data(), pinned.data(), num_bytes);
    return values;
  }

 private:
  DeviceForTest(std::shared_ptr<const CudaContext> context, CudaStream stream, bool is_stand_in)
      : context_(std::move(context)), is_stand_in_(is_stand_in), stream_(std::move(stream)) {}

  const std::shared_ptr<const CudaContext> context_;
  const bool is_stand_in_;
  std::vector<DeviceMemory> memory_;
  std::vector<PinnedMemory> pinned_;
  const CudaStream stream_;
};

}  // namespace ddprun::train
