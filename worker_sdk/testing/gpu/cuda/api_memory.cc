// Functions of memory.
#include <cstdlib>
#include <cstring>

#include "worker_sdk/testing/gpu/cuda/state.h"
#include "worker_sdk/testing/gpu/misuse.h"

using ddprun::stand_in::DeviceMemory;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::Region;
using ddprun::stand_in::State;
using ddprun::stand_in::Stream;
using ddprun::stand_in::TheSettings;

namespace {

// Queues `work(view of the device's bytes)`.
template <typename Work>
CUresult Queue(const char* call, CUdeviceptr address, size_t bytes, CUstream stream, Work work) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(call)) return error;
  const std::shared_ptr<Stream> found = state.StreamOfCurrent(call, stream);
  Region region = state.memory().Use(call, found->device(), address, bytes);
  found->Push(call, [region = std::move(region), work](bool lost) {
    if (!lost) work(region.view);
  });
  return CUDA_SUCCESS;
}

// cuPointerGetAttribute for memory that is not on a device.
CUresult HostAttribute(State& state, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  std::lock_guard lock(state.mutex());
  const auto block = state.pinned.FindUpTo(reinterpret_cast<void*>(address));
  const bool is_pinned = block && address - reinterpret_cast<CUdeviceptr>(block->first) < block->second.size;
  if (!is_pinned) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = State::HandleOf(block->second.context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(data) = CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(state.mutex());
    if (++state.num_allocations == TheSettings().no_memory_at) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto allocated = state.memory().Allocate(state.Current()->device(), size);
  if (!allocated) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = *allocated;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  if (address == 0) return CUDA_SUCCESS;
  state.memory().Free(__func__, state.Current()->device(), address);
  state.AwaitDevice();
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  *free = state.memory().FreeBytes(state.Current()->device());
  *total = TheSettings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t size, unsigned int) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (TheSettings().no_pinned_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(state.mutex());
  state.pinned.Insert(*address, {state.Current(), size});
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  {
    std::lock_guard lock(state.mutex());
    if (state.pinned.Find(address) == nullptr) Misuse(__func__, ": ", address, " is not pinned memory");
    state.pinned.Erase(address);
    std::free(address);
  }
  state.AwaitDevice();
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  State& state = State::Get();
  if (const CUresult error = state.EnterWithoutContext(__func__)) return error;
  const auto place = state.memory().Find(address);
  if (!place) return HostAttribute(state, data, attribute, address);
  const auto& [allocation, offset] = *place;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = State::HandleOf(&state.context(allocation->device()));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(data) = CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = allocation->device();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<int*>(data) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = allocation->address();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(data) = allocation->size();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Host memory is read and written when the stream executes the copy, also if the memory is not pinned: the driver may do
// that earlier, but does not promise it.
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Queue(__func__, to, bytes, stream, [=](std::byte* view) { std::memcpy(view, from, bytes); });
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Queue(__func__, from, bytes, stream, [=](std::byte* view) { std::memcpy(to, view, bytes); });
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const int device = state.StreamOfCurrent(__func__, stream)->device();
  const Region source = state.memory().Use(__func__, device, from, bytes);
  return Queue(__func__, to, bytes, stream, [=](std::byte* view) { std::memmove(view, source.view, bytes); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return Queue(__func__, to, bytes, stream, [=](std::byte* view) { std::memset(view, value, bytes); });
}

}  // extern "C"
