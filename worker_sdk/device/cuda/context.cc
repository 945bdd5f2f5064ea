#include "worker_sdk/device/cuda/context.h"

#include <map>
#include <mutex>
#include <utility>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr Duration kReleaseLimit = seconds(1);

std::string UuidText(const CUuuid& uuid) {
  const std::string hex = ToHex({uuid.bytes, sizeof uuid.bytes});
  return StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                hex.substr(16, 4), "-", hex.substr(20));
}

// Contexts by driver and index of the device.
struct Contexts {
  std::mutex mu;
  std::map<std::pair<const CudaDriver*, int>, std::weak_ptr<const CudaContext>> by_device;
};

Contexts& OpenContexts() {
  static auto* const contexts = new Contexts;  // never destroyed: threads may use it while the process exits
  return *contexts;
}

}  // namespace

StatusOr<std::vector<CudaDevice>> ListCudaDevices(const CudaDriver& driver) {
  int count = 0;
  DDPRUN_RETURN_IF_ERROR(CudaStatus(driver, driver.cuDeviceGetCount(&count), "cuDeviceGetCount", -1));
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    char name[256] = {};
    CUuuid uuid = {};
    DDPRUN_RETURN_IF_ERROR(CudaStatus(driver, driver.cuDeviceGet(&device, i), "cuDeviceGet", i));
    DDPRUN_RETURN_IF_ERROR(
        CudaStatus(driver, driver.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName", i));
    DDPRUN_RETURN_IF_ERROR(
        CudaStatus(driver, driver.cuDeviceGetUuid_v2(&uuid, device), "cuDeviceGetUuid", i));
    devices.push_back({i, name, UuidText(uuid)});
  }
  return devices;
}

StatusOr<std::shared_ptr<const CudaContext>> CudaContext::Open(const CudaDriver* driver, int index) {
  Contexts& contexts = OpenContexts();
  const std::lock_guard<std::mutex> lock(contexts.mu);
  std::weak_ptr<const CudaContext>& known = contexts.by_device[{driver, index}];
  if (auto context = known.lock()) return context;

  int count = 0, num_multiprocessors = 0;
  CUdevice device = 0;
  CUcontext handle = nullptr;
  DDPRUN_RETURN_IF_ERROR(CudaStatus(*driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount", -1));
  if (index < 0 || index >= count) {
    return InvalidArgumentError(
        StrCat("there is no GPU ", index, ": this process sees ", count, " (see CUDA_VISIBLE_DEVICES)"));
  }
  DDPRUN_RETURN_IF_ERROR(CudaStatus(*driver, driver->cuDeviceGet(&device, index), "cuDeviceGet", index));
  DDPRUN_RETURN_IF_ERROR(CudaStatus(
      *driver,
      driver->cuDeviceGetAttribute(&num_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
      "cuDeviceGetAttribute", index));
  const CUresult retained = driver->cuDevicePrimaryCtxRetain(&handle, device);
  if (retained == CUDA_ERROR_DEVICE_UNAVAILABLE) {
    return FailedPreconditionError(
        StrCat("GPU ", index, " is not available (cuDevicePrimaryCtxRetain): another process ",
               "uses it in exclusive mode, or it is prohibited; see nvidia-smi -q -d COMPUTE"));
  }
  DDPRUN_RETURN_IF_ERROR(CudaStatus(*driver, retained, "cuDevicePrimaryCtxRetain", index));
  std::shared_ptr<const CudaContext> context(
      new CudaContext(driver, index, device, handle, num_multiprocessors));
  known = context;
  return context;
}

CudaContext::CudaContext(const CudaDriver* driver, int index, CUdevice device, CUcontext handle,
                         int num_multiprocessors)
    : driver_(driver),
      index_(index),
      device_(device),
      handle_(handle),
      num_multiprocessors_(num_multiprocessors) {}

CudaContext::~CudaContext() {
  if (lost()) return;
  const auto release = [driver = driver_, device = device_] { driver->cuDevicePrimaryCtxRelease_v2(device); };
  blocking_calls_.Run(release, kReleaseLimit);
}

StatusOr<CudaContext::MemoryInfo> CudaContext::Memory() const {
  const CudaScope scope(*this);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  size_t free_bytes = 0, total_bytes = 0;
  DDPRUN_RETURN_IF_ERROR(Check(driver_->cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo"));
  return MemoryInfo{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

Status CudaContext::Check(CUresult result, std::string_view call) const {
  if (result == CUDA_SUCCESS) return OkStatus();
  if (IsSticky(result)) lost_ = true;
  return CudaStatus(*driver_, result, call, index_);
}

Status CudaContext::CheckStream(CUstream stream) const {
  const CudaScope scope(*this);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  CUcontext of_stream = nullptr;
  DDPRUN_RETURN_IF_ERROR(Check(driver_->cuStreamGetCtx(stream, &of_stream), "cuStreamGetCtx"));
  if (of_stream == handle_) return OkStatus();
  return InvalidArgumentError(StrCat("the stream does not belong to the primary context of GPU ", index_));
}

bool CudaContext::RunBlocking(std::function<void(CUresult current)> call, Duration limit) const {
  // Not `this`, which the thread may outlive.
  return blocking_calls_.Run(
      [driver = driver_, handle = handle_, call = std::move(call)] {
        const CUresult current = driver->cuCtxPushCurrent_v2(handle);
        call(current);
        CUcontext popped = nullptr;
        if (current == CUDA_SUCCESS) driver->cuCtxPopCurrent_v2(&popped);
      },
      limit);
}

void CudaContext::Destroy(std::function<void()> destroy, Duration limit) const {
  if (lost()) return;
  RunBlocking(
      [destroy = std::move(destroy)](CUresult current) {
        if (current == CUDA_SUCCESS) destroy();
      },
      limit);
}

CudaScope::CudaScope(const CudaContext& context)
    : context_(context),
      status_(context.Check(context.driver().cuCtxPushCurrent_v2(context.handle()), "cuCtxPushCurrent")) {}

CudaScope::~CudaScope() {
  CUcontext popped = nullptr;
  if (status_.ok()) context_.driver().cuCtxPopCurrent_v2(&popped);
}

}  // namespace ddprun
