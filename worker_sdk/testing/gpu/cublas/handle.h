// The handles of this process.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "worker_sdk/testing/gpu/cublas/declarations.h"
#include "worker_sdk/testing/gpu/driver.h"

namespace ddprun::stand_in {

struct Handle {
  int device = 0;
  void* stream = nullptr;     // null: the default stream, on which nothing may be called
  void* workspace = nullptr;  // null: that of cuBLAS
  size_t workspace_bytes = 0;
};

//   Threads: safe.
class Handles {
 public:
  // There is one, which is never destroyed.
  static Handles& Get();

  cublasHandle_t Add(int device);
  // Misuse if there is no such handle, or the thread's current context is not that of its device.
  std::shared_ptr<Handle> Find(const char* call, cublasHandle_t handle);
  void Remove(cublasHandle_t handle);

 private:
  std::mutex mutex_;
  uint64_t next_ = 0x5D00'0000'0000'0000u;  // not an address, so that code which follows a handle crashes
  std::map<cublasHandle_t, std::shared_ptr<Handle>> handles_;
};

}  // namespace ddprun::stand_in
