#include "worker_sdk/device/cuda/testing/fake_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace ddprun {
namespace {

std::atomic<FakeCuda*> current{nullptr};
thread_local std::vector<CUcontext> contexts;

CUcontext ContextOf(CUdevice device) { return std::bit_cast<CUcontext>(uintptr_t{0x1000} + device); }

template <size_t kSize>
struct Name {
  constexpr Name(const char (&name)[kSize]) { std::copy(name, name + kSize, text); }  // NOLINT: implicit
  char text[kSize];
};

bool NeedsContext(const std::string& name) {
  for (const char* prefix : {"cuStream", "cuEvent", "cuMem", "cuModule", "cuLaunch"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

struct FakeCuda::Functions {
  static FakeCuda& Fake() { return *current.load(); }

  template <Name kName, typename Function>
  struct Default;
  template <Name kName, typename... Parameters>
  struct Default<kName, CUresult (*)(Parameters...)> {
    static CUresult Call(Parameters...) { return Enter(kName.text, NeedsContext(kName.text)); }
  };

  template <typename Object>
  static CUresult Make(const char* name, Object* object) {
    const CUresult result = Enter(name, true);
    if (result == CUDA_SUCCESS) *object = std::bit_cast<Object>(Fake().Make());
    return result;
  }
  template <typename Object>
  static CUresult Destroy(const char* name, Object object) {
    const CUresult result = Enter(name, true);
    return result == CUDA_SUCCESS ? Fake().Destroy(std::bit_cast<void*>(object)) : result;
  }
  static CUresult Query(const char* name) {
    const CUresult result = Enter(name, true);
    if (result != CUDA_SUCCESS) return result;
    return Fake().happened && Fake().num_not_ready-- <= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
};

FakeCuda::FakeCuda() {
  DDPRUN_CHECK(current.exchange(this) == nullptr, "there is another FakeCuda");
#define DDPRUN_DEFAULT(name, result, parameters) \
  driver.name = Functions::Default<Name(#name), decltype(driver.name)>::Call;
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_DEFAULT)
#undef DDPRUN_DEFAULT
  using F = Functions;
  driver.cuDriverGetVersion = [](int* version) {
    *version = F::Fake().version;
    return Enter("cuDriverGetVersion", false);
  };
  driver.cuGetErrorName = [](CUresult error, const char** name) {
    *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return error == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  driver.cuGetErrorString = [](CUresult error, const char** text) {
    *text =
        error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "another error";
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetCount = [](int* count) {
    *count = F::Fake().num_devices;
    return Enter("cuDeviceGetCount", false);
  };
  driver.cuDeviceGet = [](CUdevice* device, int index) {
    *device = index;
    return Enter("cuDeviceGet", false);
  };
  driver.cuDeviceGetName = [](char* name, int size, CUdevice) {
    std::strncpy(name, "Fake GPU", size);
    return Enter("cuDeviceGetName", false);
  };
  driver.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i);
    return Enter("cuDeviceGetUuid_v2", false);
  };
  driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 4;
    return Enter("cuDeviceGetAttribute", false);
  };
  driver.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    const CUresult result = Enter("cuDevicePrimaryCtxRetain", false);
    *context = ContextOf(device);
    const std::lock_guard<std::mutex> lock(F::Fake().mu_);
    if (result == CUDA_SUCCESS) ++F::Fake().num_retained_;
    return result;
  };
  driver.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) {
    const CUresult result = Enter("cuDevicePrimaryCtxRelease_v2", false);
    const std::lock_guard<std::mutex> lock(F::Fake().mu_);
    if (result == CUDA_SUCCESS) --F::Fake().num_retained_;
    return result;
  };
  driver.cuCtxPushCurrent_v2 = [](CUcontext context) {
    const CUresult result = Enter("cuCtxPushCurrent_v2", false);
    if (result == CUDA_SUCCESS) contexts.push_back(context);
    return result;
  };
  driver.cuCtxPopCurrent_v2 = [](CUcontext* context) {
    EXPECT_FALSE(contexts.empty());
    *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
  };
  driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int) {
    EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
    return F::Make("cuStreamCreateWithPriority", stream);
  };
  driver.cuStreamDestroy_v2 = [](CUstream stream) { return F::Destroy("cuStreamDestroy_v2", stream); };
  driver.cuStreamQuery = [](CUstream) { return F::Query("cuStreamQuery"); };
  driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    *context = ContextOf(0);
    return Enter("cuStreamGetCtx", true);
  };
  driver.cuEventCreate = [](CUevent* event, unsigned flags) {
    EXPECT_EQ(flags, CU_EVENT_DISABLE_TIMING);
    return F::Make("cuEventCreate", event);
  };
  driver.cuEventDestroy_v2 = [](CUevent event) { return F::Destroy("cuEventDestroy_v2", event); };
  driver.cuEventQuery = [](CUevent) { return F::Query("cuEventQuery"); };
  driver.cuMemAlloc_v2 = [](CUdeviceptr* memory, size_t) { return F::Make("cuMemAlloc_v2", memory); };
  driver.cuMemFree_v2 = [](CUdeviceptr memory) { return F::Destroy("cuMemFree_v2", memory); };
  driver.cuMemGetInfo_v2 = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = 1000;
    *total_bytes = 5000;
    return Enter("cuMemGetInfo_v2", true);
  };
  driver.cuMemHostAlloc = [](void** memory, size_t, unsigned flags) {
    EXPECT_EQ(flags, CU_MEMHOSTALLOC_PORTABLE);
    return F::Make("cuMemHostAlloc", memory);
  };
  driver.cuMemFreeHost = [](void* memory) { return F::Destroy("cuMemFreeHost", memory); };
  driver.cuPointerGetAttribute = [](void* value, CUpointer_attribute attribute, CUdeviceptr) {
    const unsigned answer = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? unsigned{CU_MEMORYTYPE_HOST} : 0u;
    std::memcpy(value, &answer, sizeof answer);
    return Enter("cuPointerGetAttribute", false);
  };
  driver.cuModuleLoadData = [](CUmodule* module, const void*) { return F::Make("cuModuleLoadData", module); };
  driver.cuModuleUnload = [](CUmodule module) { return F::Destroy("cuModuleUnload", module); };
}

FakeCuda::~FakeCuda() {
  Release();
  if (lost_ == CUDA_SUCCESS) {
    EXPECT_EQ(num_live(), 0) << "objects are left";
  }
  for (void* object : objects_) std::free(object);
  EXPECT_EQ(depth(), 0) << "a context is still current";
  current = nullptr;
}

void FakeCuda::Fail(const std::string& name, CUresult result) {
  const std::lock_guard<std::mutex> lock(mu_);
  results_[name] = result;
}

void FakeCuda::LoseDevice(CUresult result) {
  const std::lock_guard<std::mutex> lock(mu_);
  lost_ = result;
}

void FakeCuda::Block(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mu_);
  blocked_.insert(name);
}

void FakeCuda::Release() {
  const std::lock_guard<std::mutex> lock(mu_);
  blocked_.clear();
  released_.notify_all();
}

int FakeCuda::num_calls() const {
  const std::lock_guard<std::mutex> lock(mu_);
  int sum = 0;
  for (const auto& [name, calls] : calls_) sum += calls;
  return sum;
}

int FakeCuda::num_calls(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

int FakeCuda::num_live() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return num_retained_ + static_cast<int>(objects_.size());
}

int FakeCuda::depth() { return static_cast<int>(contexts.size()); }

CUresult FakeCuda::Enter(const std::string& name, bool needs_context) {
  FakeCuda& fake = *current.load();
  std::unique_lock<std::mutex> lock(fake.mu_);
  ++fake.calls_[name];
  if (needs_context && contexts.empty()) ADD_FAILURE() << name << " without a context";
  fake.released_.wait(lock, [&] { return !fake.blocked_.contains(name); });
  if (fake.lost_ != CUDA_SUCCESS && (needs_context || name == "cuCtxPushCurrent_v2")) return fake.lost_;
  const auto found = fake.results_.find(name);
  return found == fake.results_.end() ? CUDA_SUCCESS : found->second;
}

void* FakeCuda::Make() {
  void* const object = std::malloc(256);
  const std::lock_guard<std::mutex> lock(mu_);
  objects_.insert(object);
  return object;
}

CUresult FakeCuda::Destroy(void* object) {
  const std::lock_guard<std::mutex> lock(mu_);
  EXPECT_EQ(objects_.erase(object), 1) << "destroyed twice";
  std::free(object);
  return CUDA_SUCCESS;
}

}  // namespace ddprun
