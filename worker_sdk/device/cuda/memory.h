// Memory of a device and pinned memory of the host, and copies between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/device/cuda/context.h"

namespace ddprun {

// How long an allocation may wait for running kernels.
inline constexpr Duration kAllocationLimit = seconds(30);

namespace internal {
struct FreeDeviceMemory {
  void operator()(void* memory) const noexcept;
  std::shared_ptr<const CudaContext> context;
};
struct FreePinnedMemory {
  void operator()(void* memory) const noexcept;
  std::shared_ptr<const CudaContext> context;
};
}  // namespace internal

// Memory of a device, aligned to 256 bytes; the contents are undefined. Host code cannot access it. Movable.
//   Threads:    the memory may be used by any.
//   Destructor: waits until the driver has freed the memory, at most 1 s; then the memory is freed later, once the device's
//               kernels have ended. Does nothing if the device is lost. Work in flight must not use the memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;  // no memory
  // Allocations may wait for running kernels, so that they belong before the first operation.
  //   num_bytes: >= 0. For 0, data() is null.
  //   Errors:    kResourceExhausted: the device has less memory; kDeadlineExceeded: the driver has not returned after
  //              `limit`, because a kernel runs; others: those of CudaStatus.
  static StatusOr<DeviceMemory> Allocate(std::shared_ptr<const CudaContext> context, int64_t num_bytes,
                                         Duration limit = kAllocationLimit);

  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }

 private:
  std::unique_ptr<void, internal::FreeDeviceMemory> memory_;
  int64_t num_bytes_ = 0;
};

// Memory of the host that the devices access without the host: copies from and to it do not block. All contexts of the
// process may use it. The contents are undefined. Otherwise like DeviceMemory.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  //   Errors: kResourceExhausted: the machine or the control group has less memory that can be pinned; others: as above.
  static StatusOr<PinnedMemory> Allocate(std::shared_ptr<const CudaContext> context, int64_t num_bytes,
                                         Duration limit = kAllocationLimit);

  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] int64_t num_bytes() const { return num_bytes_; }

 private:
  std::unique_ptr<void, internal::FreePinnedMemory> memory_;
  int64_t num_bytes_ = 0;
};

enum class MemoryKind { kPageable, kPinned, kDevice };
struct PointerInfo {
  MemoryKind kind = MemoryKind::kPageable;
  int device = -1;  // the index of the device for kDevice; otherwise -1
};
// What the driver knows about the memory at `pointer`. Memory that it does not know is pageable memory of the host.
StatusOr<PointerInfo> InfoOf(const CudaContext& context, const void* pointer);

// Copies and fills: they are put into `stream`, and do not block.
//   Shapes:   num_bytes >= 0; nothing is done for 0. The memory is used until the stream has done the work.
//   REQUIRES: `stream` belongs to `context`, and device memory to its device.
//   Errors:   kInvalidArgument: memory of the host is pageable: the driver would block, or copy later from it; others: those
//             of CudaStatus.
Status CopyToDevice(const CudaContext& context, void* device, const void* pinned, int64_t num_bytes,
                    CUstream stream);
Status CopyToHost(const CudaContext& context, void* pinned, const void* device, int64_t num_bytes,
                  CUstream stream);
Status CopyOnDevice(const CudaContext& context, void* to, const void* from, int64_t num_bytes,
                    CUstream stream);
Status FillBytes(const CudaContext& context, void* device, uint8_t value, int64_t num_bytes, CUstream stream);

}  // namespace ddprun
