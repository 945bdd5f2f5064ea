// The state of the driver in this process: devices, contexts, and the tables of objects.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/cuda/context.h"
#include "worker_sdk/testing/gpu/cuda/declarations.h"
#include "worker_sdk/testing/gpu/cuda/device_memory.h"
#include "worker_sdk/testing/gpu/cuda/kernel.h"
#include "worker_sdk/testing/gpu/cuda/stream.h"
#include "worker_sdk/testing/gpu/driver.h"

namespace ddprun::stand_in {

struct Event {
  Context* context;
  std::shared_ptr<Mark> mark;  // null before the first cuEventRecord
};

struct Module {
  Context* context;
  const void* image;
  std::map<const Kernel*, CUfunction> functions;
};

struct Function {
  CUmodule module;
  Context* context;
  const Kernel* kernel;
};

// A block of pinned host memory.
struct Pinned {
  Context* context;
  size_t size;
};

// Objects of one kind, by handle. A handle is never used twice.
template <typename Handle, typename Object>
class Table {
 public:
  Handle Add(Object object) {
    const uint64_t number = next_ += 16;
    return Insert(reinterpret_cast<Handle>(number), std::move(object));
  }
  Handle Insert(Handle handle, Object object) {
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  // nullptr if there is none.
  Object* Find(Handle handle) {
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : &it->second;
  }
  // The object with the largest handle that is not above `handle`, and its handle; nullopt if there is none.
  std::optional<std::pair<Handle, Object>> FindUpTo(Handle handle) const {
    const auto after = objects_.upper_bound(handle);
    if (after == objects_.begin()) return std::nullopt;
    return *std::prev(after);
  }
  void Erase(Handle handle) { objects_.erase(handle); }
  template <typename Function>
  void ForEach(Function function) const {
    for (const auto& [handle, object] : objects_) function(object);
  }
  template <typename Fits>
  int Count(Fits fits) const {
    int count = 0;
    for (const auto& [handle, object] : objects_) count += fits(object);
    return count;
  }

 private:
  // Not an address, so that code which follows a handle crashes.
  uint64_t next_ = 0x5A00'0000'0000'0000u;
  std::map<Handle, Object> objects_;
};

// There is one, which is never destroyed: threads of streams outlive exit().
//   Threads: safe, except members that say otherwise.
class State final : public Driver {
 public:
  static State& Get();

  // For cuInit.
  CUresult Init();
  // Of a function that needs cuInit only.
  CUresult EnterWithoutContext(const char* call);
  // Of a function that needs a context. Misuse if the thread has none. Returns the error of a lost device.
  CUresult Enter(const char* call);

  int num_devices() const { return static_cast<int>(contexts_.size()); }
  // REQUIRES: 0 <= device < num_devices().
  Context& context(int device) { return contexts_[device]; }
  // The thread's current context, or nullptr.
  Context* Current() const;
  // Misuse if `handle` is not a primary context that is retained.
  Context& Find(const char* call, CUcontext handle);
  static CUcontext HandleOf(Context* context) { return reinterpret_cast<CUcontext>(context); }
  // Misuse if objects of the context are left.
  void CheckEmpty(const char* call, Context& context);

  // The stream. Misuse if it does not exist, and in the second function if it is of another context than the current one.
  std::shared_ptr<Stream> FindStream(const char* call, CUstream handle);
  std::shared_ptr<Stream> StreamOfCurrent(const char* call, CUstream handle);

  StandInCounts Count();
  // Waits for the work that is queued now in the streams of the current context.
  void AwaitDevice();

  DeviceMemory& memory() { return memory_; }
  // Guards the tables.
  std::mutex& mutex() { return mutex_; }
  Table<CUstream, std::shared_ptr<Stream>> streams;
  Table<CUevent, Event> events;
  Table<CUmodule, Module> modules;
  Table<CUfunction, Function> functions;
  Table<void*, Pinned> pinned;
  int64_t num_allocations = 0;  // calls of cuMemAlloc

  // Driver:
  int CurrentDevice() override;
  std::shared_ptr<WorkQueue> QueueOf(const char* call, void* stream) override;
  Region Use(const char* call, int device, const void* address, size_t bytes) override;
  void CountCommunicators(int device, int change) override;
  void CountHandles(int device, int change) override;

 private:
  StandInCounts CountOf(Context& context);  // REQUIRES: mutex_ is held

  std::mutex mutex_;
  pid_t process_ = 0;  // 0 before cuInit
  std::deque<Context> contexts_;
  DeviceMemory memory_;
  std::map<int, int> communicators_, handles_;  // by device
};

// The contexts of a thread; the last one is current. Has no destructor, so that destructors of the program's static objects,
// which run after those of thread_local objects, can use it.
struct ContextStack {
  static constexpr int kMaxDepth = 64;
  Context* contexts[kMaxDepth];
  int depth;

  static ContextStack& OfThread();
};

}  // namespace ddprun::stand_in
