// What the stand-ins of NCCL and cuBLAS need from the driver's. It crosses shared libraries that are built together.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ddprun::stand_in {

// A part of device memory, as the stand-in sees it.
struct Region {
  std::byte* view = nullptr;
  std::shared_ptr<void> use;  // while it lives, freeing the memory is a misuse
};

// Work for one stream. Runs on the thread of the stream; `lost`: the device is lost, so the work must have no effect.
using Work = std::function<void(bool lost)>;

// Where work is queued.
//   Threads: safe.
class WorkQueue {
 public:
  virtual ~WorkQueue() = default;
  // Misuse if the stream has been destroyed. `call` is the function of the API that queues the work.
  virtual void Push(const char* call, Work work) = 0;
  virtual int device() const = 0;
};

//   Threads: safe.
class Driver {
 public:
  virtual ~Driver() = default;

  // The device of the thread's current context; -1 if it has none.
  virtual int CurrentDevice() = 0;
  // Misuse if there is no such stream, or if it is the default stream.
  virtual std::shared_ptr<WorkQueue> QueueOf(const char* call, void* stream) = 0;
  // Misuse unless the bytes are part of one allocation of the device.
  virtual Region Use(const char* call, int device, const void* address, size_t bytes) = 0;
  // The number of communicators, or of handles of cuBLAS, on the device changes.
  virtual void CountCommunicators(int device, int change) = 0;
  virtual void CountHandles(int device, int change) = 0;
};

// The driver of this process.
Driver& TheDriver();

}  // namespace ddprun::stand_in
