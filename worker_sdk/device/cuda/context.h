// The GPUs of this process and their primary contexts, which libcudart, LibTorch and NCCL use as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/device/cuda/blocking_calls.h"
#include "worker_sdk/device/cuda/driver.h"

namespace ddprun {

struct CudaDevice {
  int index = 0;     // 0..n-1 among the devices that CUDA_VISIBLE_DEVICES leaves
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // "GPU-3f2a1c04-...", as nvidia-smi -L prints it
};

// The devices that this process sees.
StatusOr<std::vector<CudaDevice>> ListCudaDevices(const CudaDriver& driver);

// The primary context of a device. There is one object for each device while anything uses it, so that all users learn that
// the device is lost. What belongs to the context shares it: events, streams, memory and modules.
//   Threads: any.
class CudaContext {
 public:
  // Retains the primary context, which the driver creates if it does not exist.
  //   driver: must outlive all contexts.
  //   index:  see CudaDevice.
  //   Errors: kInvalidArgument: there is no such device; kFailedPrecondition: another process uses it in exclusive mode;
  //           others: those of CudaStatus.
  static StatusOr<std::shared_ptr<const CudaContext>> Open(const CudaDriver* driver, int index);
  // Releases the primary context, unless the device is lost. Blocks at most 2 s.
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return *driver_; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] CUcontext handle() const { return handle_; }
  [[nodiscard]] int num_multiprocessors() const { return num_multiprocessors_; }

  struct MemoryInfo {
    int64_t free_bytes = 0;
    int64_t total_bytes = 0;
  };
  // The device's memory, of all processes.
  [[nodiscard]] StatusOr<MemoryInfo> Memory() const;

  // The status for the result of `call`, as CudaStatus has it. A sticky error marks the device as lost.
  Status Check(CUresult result, std::string_view call) const;
  // A sticky error was seen. What belongs to the context must then be destroyed without calls of the driver.
  [[nodiscard]] bool lost() const { return lost_.load(); }

  // kInvalidArgument if `stream` belongs to another context.
  [[nodiscard]] Status CheckStream(CUstream stream) const;

  // Makes the context current and calls `call` on the thread of BlockingCalls. Returns as BlockingCalls::Run. `current` is the
  // error with which the context could not be made current, which is that of a lost device, or CUDA_SUCCESS.
  bool RunBlocking(std::function<void(CUresult current)> call, Duration limit) const;
  // Calls `destroy` in the same way, unless the device is lost.
  void Destroy(std::function<void()> destroy, Duration limit) const;

 private:
  CudaContext(const CudaDriver* driver, int index, CUdevice device, CUcontext handle,
              int num_multiprocessors);

  const CudaDriver* const driver_;
  const int index_;
  const CUdevice device_;
  const CUcontext handle_;
  const int num_multiprocessors_;
  mutable std::atomic<bool> lost_{false};
  mutable BlockingCalls blocking_calls_;
};

// Makes the context current for the calling thread during the lifetime of this object, and then the previous one.
class CudaScope {
 public:
  explicit CudaScope(const CudaContext& context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  // OK, or why the context is not current.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const CudaContext& context_;
  const Status status_;
};

}  // namespace ddprun
