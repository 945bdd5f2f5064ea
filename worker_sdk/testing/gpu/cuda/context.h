// The primary context of a device.
#pragma once

#include <atomic>

#include "worker_sdk/testing/gpu/cuda/declarations.h"
#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {

//   Threads: safe.
class Context {
 public:
  explicit Context(int device) : device_(device) {}

  int device() const { return device_; }
  bool active() const { return retained_.load() > 0; }
  // The number of owners of the context.
  std::atomic<int>& retained() { return retained_; }

  // The error that all calls return since the device was lost.
  CUresult error() const { return static_cast<CUresult>(error_.load()); }
  bool lost() const { return error() != CUDA_SUCCESS; }

  void Lose() { error_ = TheSettings().lost_error; }
  // Counts an operation, over all devices of the process. Returns false if the device is lost, before it or with it.
  bool BeginOperation() {
    static std::atomic<int64_t> operations = 0;
    if (operations.fetch_add(1) + 1 == TheSettings().lost_after) Lose();
    return !lost();
  }

 private:
  const int device_;
  std::atomic<int> retained_ = 0;
  std::atomic<int> error_ = 0;
};

}  // namespace ddprun::stand_in
