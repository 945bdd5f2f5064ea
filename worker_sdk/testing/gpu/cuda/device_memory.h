// The memory of the devices. An address that the program under test sees is reserved and not accessible, so that host code
// which follows it crashes. The content is elsewhere, where only the stand-in looks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "worker_sdk/testing/gpu/driver.h"

namespace ddprun::stand_in {

// One allocation. Its content ends at a page that cannot be accessed, and begins after one.
class Allocation {
 public:
  // Fills the content with 0xFF: floating-point numbers are NaNs.
  Allocation(int device, uint64_t address, size_t size);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  int device() const { return device_; }
  uint64_t address() const { return address_; }
  size_t size() const { return size_; }
  std::byte* view() const { return view_; }

  int uses() const { return uses_.load(std::memory_order_acquire); }
  void AddUse() { uses_.fetch_add(1, std::memory_order_relaxed); }
  void DropUse() { uses_.fetch_sub(1, std::memory_order_release); }

  // Whether somebody has written behind the content.
  bool IsOverrun() const;

 private:
  const int device_;
  const uint64_t address_;
  const size_t size_, padded_;  // padded_: a multiple of the alignment
  size_t mapped_ = 0;
  std::byte* mapping_ = nullptr;
  std::byte* view_ = nullptr;
  std::atomic<int> uses_{0};
};

//   Threads: safe.
class DeviceMemory {
 public:
  struct Place {
    std::shared_ptr<Allocation> allocation;
    size_t offset = 0;
  };

  // The address of the new allocation; nullopt if the device has not enough memory.
  std::optional<uint64_t> Allocate(int device, size_t size);
  // Misuse unless `address` was returned by Allocate for the device, was not freed, and no queued work uses it.
  void Free(const char* call, int device, uint64_t address);

  // The allocation that contains the address; nullopt if there is none.
  std::optional<Place> Find(uint64_t address);
  // Misuse unless the bytes are part of one allocation of the device.
  Region Use(const char* call, int device, uint64_t address, size_t bytes);
  // The same for all bytes from the address to the end of the allocation.
  Region UseRest(const char* call, int device, uint64_t address);

  size_t FreeBytes(int device);
  int Count(int device);

 private:
  Place FindOrAbort(const char* call, int device, uint64_t address);

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Allocation>> allocations_;  // by address
  std::map<uint64_t, size_t> freed_;                             // their addresses are not used again
  std::map<int, size_t> used_;                                   // bytes by device
};

}  // namespace ddprun::stand_in
