// Functions of devices and contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "worker_sdk/testing/gpu/cuda/state.h"
#include "worker_sdk/testing/gpu/misuse.h"

using ddprun::stand_in::Context;
using ddprun::stand_in::ContextStack;
using ddprun::stand_in::Driver;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::State;
using ddprun::stand_in::TheSettings;

namespace {

CUresult EnterDevice(const char* call, CUdevice device) {
  if (const CUresult error = State::Get().EnterWithoutContext(call)) return error;
  return device >= 0 && device < State::Get().num_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

Driver& ddprun::stand_in::TheDriver() { return State::Get(); }

extern "C" {

// For libnccl.so.2.
__attribute__((visibility("default"))) Driver* StandInDriver() { return &State::Get(); }

CUresult cuInit(unsigned int flags) { return flags == 0 ? State::Get().Init() : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int* version) {
  const int chosen = TheSettings().driver_version;
  *version = chosen == 0 ? CUDA_VERSION : chosen;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = State::Get().EnterWithoutContext(__func__)) return error;
  *count = State::Get().num_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = EnterDevice(__func__, ordinal)) return error;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (const CUresult error = EnterDevice(__func__, device)) return error;
  std::snprintf(name, static_cast<size_t>(std::max(length, 0)), "Stand-in %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (const CUresult error = EnterDevice(__func__, device)) return error;
  std::memcpy(uuid->bytes, "stand-in device", sizeof uuid->bytes);
  uuid->bytes[sizeof uuid->bytes - 1] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

// A device of compute capability 9.0.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult error = EnterDevice(__func__, device)) return error;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = 0x10 + device;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 2048;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      *value = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult error = EnterDevice(__func__, device)) return error;
  if (TheSettings().retain_error != 0) return static_cast<CUresult>(TheSettings().retain_error);
  Context& primary = State::Get().context(device);
  if (primary.lost()) return primary.error();
  ++primary.retained();
  *context = State::HandleOf(&primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  if (const CUresult error = EnterDevice(__func__, device)) return error;
  Context& primary = State::Get().context(device);
  if (!primary.active()) Misuse(__func__, ": the context of device ", device, " is not retained");
  if (primary.retained() == 1) State::Get().CheckEmpty(__func__, primary);
  --primary.retained();
  return primary.error();
}

CUresult cuCtxPushCurrent(CUcontext context) {
  if (const CUresult error = State::Get().EnterWithoutContext(__func__)) return error;
  ContextStack& stack = ContextStack::OfThread();
  if (stack.depth == ContextStack::kMaxDepth) Misuse(__func__, ": contexts are pushed, but not popped");
  stack.contexts[stack.depth++] = &State::Get().Find(__func__, context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (const CUresult error = State::Get().EnterWithoutContext(__func__)) return error;
  Context* const current = State::Get().Current();
  if (current == nullptr) {
    if (!TheSettings().context_errors) Misuse(__func__, ": the thread has no current context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  --ContextStack::OfThread().depth;
  if (context != nullptr) *context = State::HandleOf(current);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult error = State::Get().EnterWithoutContext(__func__)) return error;
  *context = State::HandleOf(State::Get().Current());
  return CUDA_SUCCESS;
}

}  // extern "C"
