// Owners of the stand-in's objects, for its tests. Every error fails the check.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"

namespace ddprun::stand_in {

// Exits the process with a message if a call failed.
inline void Ok(CUresult result, const char* what = "a call of CUDA") {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", what, name);
  std::exit(2);
}

// The context of a device, current for the thread that owns it.
class ScopedContext {
 public:
  explicit ScopedContext(int device = 0) : device_(device) {
    Ok(cuInit(0), "cuInit");
    Ok(cuDevicePrimaryCtxRetain(&context_, device), "cuDevicePrimaryCtxRetain");
    Ok(cuCtxPushCurrent(context_), "cuCtxPushCurrent");
  }
  ~ScopedContext() {
    cuCtxPopCurrent(nullptr);
    cuDevicePrimaryCtxRelease(device_);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  CUcontext get() const { return context_; }

 private:
  const int device_;
  CUcontext context_ = nullptr;
};

class ScopedStream {
 public:
  ScopedStream() { Ok(cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate"); }
  ~ScopedStream() { cuStreamDestroy(stream_); }
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;

  CUstream get() const { return stream_; }
  void Synchronize() const { Ok(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  CUstream stream_ = nullptr;
};

class ScopedEvent {
 public:
  ScopedEvent() { Ok(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"); }
  ~ScopedEvent() { cuEventDestroy(event_); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;

  CUevent get() const { return event_; }

 private:
  CUevent event_ = nullptr;
};

// Work that is queued in the stream later starts after Release().
class ScopedHold {
 public:
  explicit ScopedHold(const ScopedStream& stream) : hold_(StandInHold(stream.get())) {}
  ~ScopedHold() { Release(); }
  ScopedHold(const ScopedHold&) = delete;
  ScopedHold& operator=(const ScopedHold&) = delete;

  void Release() {
    if (hold_ != nullptr) StandInRelease(std::exchange(hold_, nullptr));
  }

 private:
  void* hold_;
};

// Device memory for `count` values.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    Ok(cuMemAlloc(&address_, count * sizeof(T)), "cuMemAlloc");
  }
  DeviceArray(const std::vector<T>& values, const ScopedStream& stream) : DeviceArray(values.size()) {
    Ok(cuMemcpyHtoDAsync(address_, values.data(), count_ * sizeof(T), stream.get()), "cuMemcpyHtoDAsync");
    stream.Synchronize();
  }
  ~DeviceArray() { cuMemFree(address_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  CUdeviceptr get() const { return address_; }
  T* pointer() const { return reinterpret_cast<T*>(address_); }
  // The values after the work that is in the stream now.
  std::vector<T> Read(const ScopedStream& stream) const {
    std::vector<T> values(count_);
    Ok(cuMemcpyDtoHAsync(values.data(), address_, count_ * sizeof(T), stream.get()), "cuMemcpyDtoHAsync");
    stream.Synchronize();
    return values;
  }

 private:
  const size_t count_;
  CUdeviceptr address_ = 0;
};

}  // namespace ddprun::stand_in
