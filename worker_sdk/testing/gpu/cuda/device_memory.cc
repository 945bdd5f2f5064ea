#include "worker_sdk/testing/gpu/cuda/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "worker_sdk/testing/gpu/misuse.h"
#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {
namespace {

constexpr size_t kPage = 4096, kAlignment = 256;
constexpr int kGarbage = 0xFF, kPadding = 0xC5;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

std::byte* Map(size_t bytes) {
  void* const place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  DDPRUN_CHECK(place != MAP_FAILED, "mmap of " << bytes << " bytes");
  return static_cast<std::byte*>(place);
}

std::string Hex(uint64_t address) {
  std::ostringstream text;
  text << "0x" << std::hex << address;
  return text.str();
}

}  // namespace

Allocation::Allocation(int device, uint64_t address, size_t size)
    : device_(device), address_(address), size_(size), padded_(RoundUp(size, kAlignment)) {
  const size_t content = RoundUp(padded_, kPage);
  mapped_ = content + 2 * kPage;
  mapping_ = Map(mapped_);
  DDPRUN_CHECK(mprotect(mapping_ + kPage, content, PROT_READ | PROT_WRITE) == 0, size);
  view_ = mapping_ + kPage + content - padded_;
  std::memset(view_, kGarbage, size_);
  std::memset(view_ + size_, kPadding, padded_ - size_);
}

Allocation::~Allocation() { munmap(mapping_, mapped_); }

bool Allocation::IsOverrun() const {
  return std::any_of(view_ + size_, view_ + padded_, [](std::byte b) { return b != std::byte{kPadding}; });
}

std::optional<uint64_t> DeviceMemory::Allocate(int device, size_t size) {
  std::lock_guard lock(mutex_);
  if (size > TheSettings().memory_bytes - used_[device]) return std::nullopt;
  used_[device] += size;
  // The pages before and behind the allocation belong to it, so that addresses of two allocations never touch.
  const uint64_t address = reinterpret_cast<uint64_t>(Map(RoundUp(size, kPage) + 2 * kPage)) + kPage;
  allocations_[address] = std::make_shared<Allocation>(device, address, size);
  return address;
}

void DeviceMemory::Free(const char* call, int device, uint64_t address) {
  std::lock_guard lock(mutex_);
  const Place place = FindOrAbort(call, device, address);
  const Allocation& allocation = *place.allocation;
  if (place.offset != 0) Misuse(call, ": ", Hex(address), " is inside an allocation");
  if (allocation.uses() != 0)
    Misuse(call, ": queued work or a registration uses the ", allocation.size(), " bytes at ", Hex(address));
  if (allocation.IsOverrun()) Misuse(call, ": work has written behind the ", allocation.size(), " bytes");
  used_[device] -= allocation.size();
  freed_[address] = allocation.size();
  allocations_.erase(address);
}

std::optional<DeviceMemory::Place> DeviceMemory::Find(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second->size()) return std::nullopt;
  return Place{it->second, address - it->first};
}

DeviceMemory::Place DeviceMemory::FindOrAbort(const char* call, int device, uint64_t address) {
  const auto it = allocations_.upper_bound(address);
  if (it != allocations_.begin()) {
    const auto& [begin, allocation] = *std::prev(it);
    if (address - begin <= allocation->size()) {
      if (allocation->device() != device)
        Misuse(call, ": ", Hex(address), " is memory of device ", allocation->device(), ", not of device ",
               device);
      return {allocation, address - begin};
    }
  }
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin() && address - std::prev(freed)->first <= std::prev(freed)->second)
    Misuse(call, ": ", Hex(address), " is memory that was freed");
  Misuse(call, ": ", Hex(address), " is not device memory");
}

Region DeviceMemory::Use(const char* call, int device, uint64_t address, size_t bytes) {
  if (bytes == 0) return {};
  std::lock_guard lock(mutex_);
  const auto [allocation, offset] = FindOrAbort(call, device, address);
  if (bytes > allocation->size() - offset)
    Misuse(call, ": ", bytes, " bytes from byte ", offset, " of an allocation of ", allocation->size());
  allocation->AddUse();
  return {allocation->view() + offset,
          std::shared_ptr<void>(nullptr, [a = allocation](void*) { a->DropUse(); })};
}

Region DeviceMemory::UseRest(const char* call, int device, uint64_t address) {
  const std::optional<Place> place = Find(address);
  return Use(call, device, address, place ? place->allocation->size() - place->offset : 1);
}

size_t DeviceMemory::FreeBytes(int device) {
  std::lock_guard lock(mutex_);
  return TheSettings().memory_bytes - used_[device];
}

int DeviceMemory::Count(int device) {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(allocations_.begin(), allocations_.end(),
                                        [&](const auto& entry) { return entry.second->device() == device; }));
}

}  // namespace ddprun::stand_in
