#include "worker_sdk/device/cuda/memory.h"

#include <bit>
#include <mutex>
#include <string>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr Duration kFreeLimit = seconds(1);

CUdeviceptr AsDevice(const void* pointer) { return std::bit_cast<CUdeviceptr>(pointer); }

// The functions for one kind of memory.
struct Allocator {
  const char* call;
  CUresult (*allocate)(const CudaDriver& driver, void** memory, size_t num_bytes);
  CUresult (*free)(const CudaDriver& driver, void* memory);
};

constexpr Allocator kDevice = {
    .call = "cuMemAlloc",
    .allocate =
        [](const CudaDriver& driver, void** memory, size_t num_bytes) {
          CUdeviceptr allocated = 0;
          const CUresult result = driver.cuMemAlloc_v2(&allocated, num_bytes);
          *memory = std::bit_cast<void*>(allocated);
          return result;
        },
    .free = [](const CudaDriver& driver, void* memory) { return driver.cuMemFree_v2(AsDevice(memory)); },
};

constexpr Allocator kPinned = {
    .call = "cuMemHostAlloc",
    .allocate =
        [](const CudaDriver& driver, void** memory, size_t num_bytes) {
          return driver.cuMemHostAlloc(memory, num_bytes, CU_MEMHOSTALLOC_PORTABLE);
        },
    .free = [](const CudaDriver& driver, void* memory) { return driver.cuMemFreeHost(memory); },
};

void Free(const Allocator& allocator, const CudaContext& context, void* memory) {
  context.Destroy(
      [free = allocator.free, driver = &context.driver(), memory] { (void)free(*driver, memory); },
      kFreeLimit);
}

// Shared by the caller of Allocate and the thread that allocates.
struct Allocation {
  std::mutex mu;
  bool returned = false;
  bool abandoned = false;  // the caller does not wait any more
  CUresult result = CUDA_SUCCESS;
  void* memory = nullptr;
};

StatusOr<void*> Allocate(const Allocator& allocator, const CudaContext& context, int64_t num_bytes,
                         Duration limit) {
  DDPRUN_CHECK(num_bytes >= 0, num_bytes);
  if (num_bytes == 0) return nullptr;
  {
    const CudaScope scope(context);  // fails if the device is lost, for which the thread may be waiting
    DDPRUN_RETURN_IF_ERROR(scope.status());
  }
  const auto allocation = std::make_shared<Allocation>();
  context.RunBlocking(
      [allocation, allocator, driver = &context.driver(), num_bytes](CUresult current) {
        void* memory = nullptr;
        const CUresult result =
            current == CUDA_SUCCESS ? allocator.allocate(*driver, &memory, num_bytes) : current;
        const std::lock_guard<std::mutex> lock(allocation->mu);
        allocation->returned = true;
        allocation->result = result;
        allocation->memory = memory;
        if (allocation->abandoned && result == CUDA_SUCCESS) (void)allocator.free(*driver, memory);
      },
      limit);
  const std::lock_guard<std::mutex> lock(allocation->mu);
  const std::string call = StrCat(allocator.call, " of ", num_bytes, " bytes");
  if (!allocation->returned) {
    allocation->abandoned = true;
    return DeadlineExceededError(StrCat(call, " on GPU ", context.index(), " has not returned after ",
                                        limit / seconds(1), " s: it waits for kernels that do not end"));
  }
  DDPRUN_RETURN_IF_ERROR(context.Check(allocation->result, call));
  return allocation->memory;
}

Status CheckPinned(const CudaContext& context, const void* pointer) {
  DDPRUN_ASSIGN_OR_RETURN(const PointerInfo info, InfoOf(context, pointer));
  if (info.kind == MemoryKind::kPinned) return OkStatus();
  return InvalidArgumentError("an asynchronous copy needs pinned memory of the host");
}

}  // namespace

void internal::FreeDeviceMemory::operator()(void* memory) const noexcept { Free(kDevice, *context, memory); }
void internal::FreePinnedMemory::operator()(void* memory) const noexcept { Free(kPinned, *context, memory); }

StatusOr<DeviceMemory> DeviceMemory::Allocate(std::shared_ptr<const CudaContext> context, int64_t num_bytes,
                                              Duration limit) {
  StatusOr<void*> allocated = ddprun::Allocate(kDevice, *context, num_bytes, limit);
  if (IsResourceExhausted(allocated.status())) {
    DDPRUN_ASSIGN_OR_RETURN(const CudaContext::MemoryInfo info, context->Memory());
    return ResourceExhaustedError(StrCat(allocated.status().message(), "; ", info.free_bytes, " of ",
                                         info.total_bytes, " bytes are free"));
  }
  DDPRUN_ASSIGN_OR_RETURN(void* const memory, std::move(allocated));
  DeviceMemory owner;
  owner.memory_ = {memory, internal::FreeDeviceMemory{std::move(context)}};
  owner.num_bytes_ = num_bytes;
  return owner;
}

StatusOr<PinnedMemory> PinnedMemory::Allocate(std::shared_ptr<const CudaContext> context, int64_t num_bytes,
                                              Duration limit) {
  DDPRUN_ASSIGN_OR_RETURN(void* const memory, ddprun::Allocate(kPinned, *context, num_bytes, limit));
  PinnedMemory owner;
  owner.memory_ = {memory, internal::FreePinnedMemory{std::move(context)}};
  owner.num_bytes_ = num_bytes;
  return owner;
}

StatusOr<PointerInfo> InfoOf(const CudaContext& context, const void* pointer) {
  const CudaScope scope(context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  const CudaDriver& driver = context.driver();
  unsigned type = 0;
  const CUresult result =
      driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AsDevice(pointer));
  if (result == CUDA_ERROR_INVALID_VALUE) return PointerInfo{};
  DDPRUN_RETURN_IF_ERROR(context.Check(result, "cuPointerGetAttribute"));
  if (type == CU_MEMORYTYPE_HOST) return PointerInfo{MemoryKind::kPinned};
  int device = 0;
  DDPRUN_RETURN_IF_ERROR(context.Check(
      driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, AsDevice(pointer)),
      "cuPointerGetAttribute"));
  return PointerInfo{MemoryKind::kDevice, device};
}

Status CopyToDevice(const CudaContext& context, void* device, const void* pinned, int64_t num_bytes,
                    CUstream stream) {
  if (num_bytes == 0) return OkStatus();
  DDPRUN_RETURN_IF_ERROR(CheckPinned(context, pinned));
  const CudaScope scope(context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context.Check(context.driver().cuMemcpyHtoDAsync_v2(AsDevice(device), pinned, num_bytes, stream),
                       "cuMemcpyHtoDAsync");
}

Status CopyToHost(const CudaContext& context, void* pinned, const void* device, int64_t num_bytes,
                  CUstream stream) {
  if (num_bytes == 0) return OkStatus();
  DDPRUN_RETURN_IF_ERROR(CheckPinned(context, pinned));
  const CudaScope scope(context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context.Check(context.driver().cuMemcpyDtoHAsync_v2(pinned, AsDevice(device), num_bytes, stream),
                       "cuMemcpyDtoHAsync");
}

Status CopyOnDevice(const CudaContext& context, void* to, const void* from, int64_t num_bytes,
                    CUstream stream) {
  if (num_bytes == 0) return OkStatus();
  const CudaScope scope(context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context.Check(context.driver().cuMemcpyDtoDAsync_v2(AsDevice(to), AsDevice(from), num_bytes, stream),
                       "cuMemcpyDtoDAsync");
}

Status FillBytes(const CudaContext& context, void* device, uint8_t value, int64_t num_bytes,
                 CUstream stream) {
  if (num_bytes == 0) return OkStatus();
  const CudaScope scope(context);
  DDPRUN_RETURN_IF_ERROR(scope.status());
  return context.Check(context.driver().cuMemsetD8Async(AsDevice(device), value, num_bytes, stream),
                       "cuMemsetD8Async");
}

}  // namespace ddprun
