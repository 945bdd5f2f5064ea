// Functions of modules and kernels, and the texts of errors.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "worker_sdk/testing/gpu/cuda/state.h"
#include "worker_sdk/testing/gpu/misuse.h"

using ddprun::stand_in::Context;
using ddprun::stand_in::FindKernel;
using ddprun::stand_in::Function;
using ddprun::stand_in::Kernel;
using ddprun::stand_in::Misuse;
using ddprun::stand_in::Module;
using ddprun::stand_in::State;
using ddprun::stand_in::Stream;

namespace {

// The head of an image that `nvcc -fatbin` writes.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // behind the header
};
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// The image of a build without a toolkit.
bool IsEmpty(const void* image) { return *static_cast<const char*>(image) == 0; }

FatbinHeader HeaderOf(const void* image) {
  FatbinHeader header;
  std::memcpy(&header, image, sizeof header);
  return header;
}

// Images are not compressed, so the names of kernels are in them.
bool Contains(const void* image, std::string_view kernel) {
  if (IsEmpty(image)) return true;
  const FatbinHeader header = HeaderOf(image);
  return memmem(image, header.header_bytes + header.bytes, kernel.data(), kernel.size()) != nullptr;
}

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* Find(CUresult error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

extern "C" {

// Accepts the images of cuda_fatbin, also the empty one.
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsEmpty(image) && HeaderOf(image).magic != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
  std::lock_guard lock(state.mutex());
  *module = state.modules.Add({state.Current(), image, {}});
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  std::lock_guard lock(state.mutex());
  const Module* const found = state.modules.Find(module);
  if (found == nullptr) Misuse(__func__, ": no such module: ", module);
  if (found->context != state.Current()) Misuse(__func__, ": the module is of another device");
  for (const auto& [kernel, function] : found->functions) state.functions.Erase(function);
  state.modules.Erase(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  std::lock_guard lock(state.mutex());
  Module* const found = state.modules.Find(module);
  if (found == nullptr) Misuse(__func__, ": no such module: ", module);
  const Kernel* const kernel = FindKernel(name);
  if (kernel == nullptr || !Contains(found->image, name)) return CUDA_ERROR_NOT_FOUND;
  CUfunction& handle = found->functions[kernel];
  if (handle == nullptr) handle = state.functions.Add({module, found->context, kernel});
  *function = handle;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
  State& state = State::Get();
  if (const CUresult error = state.Enter(__func__)) return error;
  const Kernel* kernel = nullptr;
  {
    std::lock_guard lock(state.mutex());
    const Function* const found = state.functions.Find(function);
    if (found == nullptr)
      Misuse(__func__, ": no such function: ", function, "; its module may have been unloaded");
    if (found->context != state.Current()) Misuse(__func__, ": the function is of another device");
    kernel = found->kernel;
  }
  const uint64_t block = uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block == 0 || block > 1024 || grid_y > 65535 ||
      grid_z > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr || parameters == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes != 0)
    Misuse(__func__, ": ", kernel->name, " has one dimension and no shared memory");
  if (block % kernel->block_multiple != 0)
    Misuse(__func__, ": ", kernel->name, " needs a multiple of ", kernel->block_multiple, " threads, not ",
           block);
  const std::shared_ptr<Stream> found = state.StreamOfCurrent(__func__, stream);
  const auto resolve = [&](const void* address) {
    return state.memory().UseRest("cuLaunchKernel", found->device(), reinterpret_cast<uint64_t>(address));
  };
  found->Push(__func__, [run = kernel->bind(parameters, resolve)](bool lost) {
    if (!lost) run();
  });
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const ErrorText* const entry = Find(error);
  *text = entry == nullptr ? nullptr : entry->name;
  return entry == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* const entry = Find(error);
  *text = entry == nullptr ? nullptr : entry->text;
  return entry == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // extern "C"
