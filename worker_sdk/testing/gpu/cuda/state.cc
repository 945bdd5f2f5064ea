#include "worker_sdk/testing/gpu/cuda/state.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {
namespace {

// Runs when the program exits or unloads the library, after the destructors of the program's static objects.
__attribute__((destructor)) void CheckLeaks() {
  StandInCounts left{};
  StandInReport(&left);
  if (left.contexts + left.streams + left.events + left.allocations + left.pinned + left.modules +
          left.communicators + left.handles ==
      0)
    return;
  std::fprintf(
      stderr,
      "GPU stand-in: left at exit: contexts: %d, streams: %d, events: %d, allocations: %d, pinned: %d, "
      "modules: %d, communicators: %d, handles: %d\n",
      left.contexts, left.streams, left.events, left.allocations, left.pinned, left.modules,
      left.communicators, left.handles);
  if (!TheSettings().print_leaks) std::abort();
}

StandInCounts operator+(const StandInCounts& a, const StandInCounts& b) {
  return {a.contexts + b.contexts,           a.streams + b.streams, a.events + b.events,
          a.allocations + b.allocations,     a.pinned + b.pinned,   a.modules + b.modules,
          a.communicators + b.communicators, a.handles + b.handles};
}

}  // namespace

ContextStack& ContextStack::OfThread() {
  static thread_local ContextStack stack{};
  return stack;
}

State& State::Get() {
  static State* const state = new State;
  return *state;
}

CUresult State::Init() {
  const Settings& settings = TheSettings();
  if (settings.init_error != 0) return static_cast<CUresult>(settings.init_error);
  if (settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  std::lock_guard lock(mutex_);
  if (process_ != 0) return process_ == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  process_ = getpid();
  for (int i = 0; i < settings.devices; ++i) contexts_.emplace_back(i);
  return CUDA_SUCCESS;
}

CUresult State::EnterWithoutContext(const char* call) {
  std::lock_guard lock(mutex_);
  if (process_ == 0) return CUDA_ERROR_NOT_INITIALIZED;
  if (process_ != getpid()) Misuse(call, ": in a child of fork(), but the parent had called cuInit");
  return CUDA_SUCCESS;
}

CUresult State::Enter(const char* call) {
  if (const CUresult error = EnterWithoutContext(call)) return error;
  Context* const current = Current();
  if (current != nullptr) {
    if (!current->active()) Misuse(call, ": the current context was released");
    return current->error();
  }
  if (!TheSettings().context_errors) Misuse(call, ": the thread has no current context");
  return CUDA_ERROR_INVALID_CONTEXT;
}

Context* State::Current() const {
  const ContextStack& stack = ContextStack::OfThread();
  return stack.depth == 0 ? nullptr : stack.contexts[stack.depth - 1];
}

Context& State::Find(const char* call, CUcontext handle) {
  for (Context& context : contexts_) {
    if (HandleOf(&context) == handle && context.active()) return context;
  }
  Misuse(call, ": not a primary context that is retained: ", handle);
}

std::shared_ptr<Stream> State::FindStream(const char* call, CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    Misuse(call, ": on the default stream");
  std::lock_guard lock(mutex_);
  const auto* stream = streams.Find(handle);
  if (stream == nullptr) Misuse(call, ": no such stream: ", handle, "; it may have been destroyed");
  return *stream;
}

std::shared_ptr<Stream> State::StreamOfCurrent(const char* call, CUstream handle) {
  std::shared_ptr<Stream> stream = FindStream(call, handle);
  if (&stream->context() != Current())
    Misuse(call, ": the stream is of device ", stream->device(), ", the current context of device ",
           Current()->device());
  return stream;
}

StandInCounts State::CountOf(Context& context) {
  if (context.lost()) return {};
  const auto fits = [&](const auto& object) { return object.context == &context; };
  return {.contexts = context.active(),
          .streams = streams.Count([&](const auto& stream) { return &stream->context() == &context; }),
          .events = events.Count(fits),
          .allocations = memory_.Count(context.device()),
          .pinned = pinned.Count(fits),
          .modules = modules.Count(fits),
          .communicators = communicators_[context.device()],
          .handles = handles_[context.device()]};
}

StandInCounts State::Count() {
  std::lock_guard lock(mutex_);
  StandInCounts sum{};
  if (process_ != getpid()) return sum;  // the objects are those of the parent
  for (Context& context : contexts_) sum = sum + CountOf(context);
  return sum;
}

void State::CheckEmpty(const char* call, Context& context) {
  std::lock_guard lock(mutex_);
  const StandInCounts left = CountOf(context);
  if (left.streams + left.events + left.allocations + left.pinned + left.modules + left.communicators +
          left.handles ==
      0)
    return;
  Misuse(call, ": the context still has objects: streams: ", left.streams, ", events: ", left.events,
         ", allocations: ", left.allocations, ", pinned: ", left.pinned, ", modules: ", left.modules,
         ", communicators: ", left.communicators, ", handles: ", left.handles);
}

void State::AwaitDevice() {
  if (!TheSettings().free_waits) return;
  std::vector<std::shared_ptr<Stream>> of_device;
  {
    std::lock_guard lock(mutex_);
    streams.ForEach([&](const std::shared_ptr<Stream>& stream) {
      if (&stream->context() == Current()) of_device.push_back(stream);
    });
  }
  for (const std::shared_ptr<Stream>& stream : of_device) stream->AwaitQueued();
}

int State::CurrentDevice() { return Current() == nullptr ? -1 : Current()->device(); }

std::shared_ptr<WorkQueue> State::QueueOf(const char* call, void* stream) {
  return FindStream(call, static_cast<CUstream>(stream));
}

Region State::Use(const char* call, int device, const void* address, size_t bytes) {
  return memory_.Use(call, device, reinterpret_cast<uint64_t>(address), bytes);
}

void State::CountCommunicators(int device, int change) {
  std::lock_guard lock(mutex_);
  communicators_[device] += change;
}

void State::CountHandles(int device, int change) {
  std::lock_guard lock(mutex_);
  handles_[device] += change;
}

}  // namespace ddprun::stand_in

void StandInLoseDevice(int device) { ddprun::stand_in::State::Get().context(device).Lose(); }

void StandInReport(StandInCounts* counts) { *counts = ddprun::stand_in::State::Get().Count(); }
