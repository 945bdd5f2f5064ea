#include "worker_sdk/testing/gpu/cublas/handle.h"

#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {

Handles& Handles::Get() {
  static Handles* const handles = new Handles;
  return *handles;
}

cublasHandle_t Handles::Add(int device) {
  TheDriver().CountHandles(device, 1);
  std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<cublasHandle_t>(next_ += 16);
  handles_[handle] = std::make_shared<Handle>(Handle{.device = device});
  return handle;
}

std::shared_ptr<Handle> Handles::Find(const char* call, cublasHandle_t handle) {
  const int current = TheDriver().CurrentDevice();
  std::lock_guard lock(mutex_);
  const auto it = handles_.find(handle);
  if (it == handles_.end()) Misuse(call, ": no such handle: ", handle, "; it may have been destroyed");
  if (current < 0) Misuse(call, ": the thread has no current context");
  if (current != it->second->device)
    Misuse(call, ": the handle is of device ", it->second->device, ", the current context of device ",
           current);
  return it->second;
}

void Handles::Remove(cublasHandle_t handle) {
  std::lock_guard lock(mutex_);
  TheDriver().CountHandles(handles_.at(handle)->device, -1);
  handles_.erase(handle);
}

}  // namespace ddprun::stand_in
