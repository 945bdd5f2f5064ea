// A table of driver functions without a device, for tests of error paths. No work is done: events happen when the test says
// so, and memory of the device is memory of the host.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "worker_sdk/device/cuda/driver.h"

namespace ddprun {

// One at a time. Records failures of the test for misuse: calls that need a context without one, objects that are destroyed
// twice. The destructor does so for objects that are left, unless the device is lost.
//   Threads: any.
class FakeCuda {
 public:
  FakeCuda();
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // Starts as a table of functions that succeed; a test may replace some.
  CudaDriver driver;

  // From now on, calls of the function `name` return `result`.
  void Fail(const std::string& name, CUresult result);
  // Each call that needs a context, and cuCtxPushCurrent, returns `result`.
  void LoseDevice(CUresult result);
  // Calls of the function `name` block until Release, or the destructor.
  void Block(const std::string& name);
  void Release();

  [[nodiscard]] int num_calls() const;                         // of all functions
  [[nodiscard]] int num_calls(const std::string& name) const;  // that have begun
  // Contexts that are retained, streams, events, modules, and blocks of memory.
  [[nodiscard]] int num_live() const;
  // Contexts on the stack of the calling thread.
  [[nodiscard]] static int depth();

  std::atomic<int> num_devices{2};
  std::atomic<int> version{12040};
  std::atomic<bool> happened{false};  // what queries of events and streams return
  std::atomic<int> num_not_ready{
      0};  // so many queries return CUDA_ERROR_NOT_READY although `happened` is set

 private:
  struct Functions;

  // At the start of each call. Returns the result that the test asked for, or CUDA_SUCCESS.
  static CUresult Enter(const std::string& name, bool needs_context);
  void* Make();
  CUresult Destroy(void* object);

  mutable std::mutex mu_;
  std::condition_variable released_;
  std::map<std::string, CUresult> results_;
  std::map<std::string, int> calls_;
  std::set<std::string> blocked_;
  CUresult lost_ = CUDA_SUCCESS;
  int num_retained_ = 0;
  std::set<void*> objects_;
};

}  // namespace ddprun
