#include "worker_sdk/comm/host/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

constexpr size_t kPage = 4096;

// The distance between the parts of two ranks: an odd number of pages. Some CPUs (AMD Zen) find a line in the L1 cache by a
// hash of bits 12 to 27 of its address. At a distance of 256 MiB the lines of two parts would displace each other, which
// makes a sum of both four times as slow.
size_t StrideOf(size_t part_bytes) {
  const size_t pages = (part_bytes + kPage - 1) / kPage;
  return pages == 0 ? 0 : (pages | 1) * kPage;
}

}  // namespace

// At the beginning of the region; zero in new memory.
struct Region::Control {
  std::atomic<uint32_t> num_released;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

uint64_t Region::SizeOf(int num_ranks, size_t part_bytes) {
  uint64_t size = 0;
  if (part_bytes > UINT64_MAX - kPage || __builtin_mul_overflow(StrideOf(part_bytes), num_ranks, &size) ||
      __builtin_add_overflow(size, kPage, &size)) {
    return UINT64_MAX;
  }
  return size;
}

size_t Region::Stride() const { return StrideOf(part_bytes_); }

StatusOr<std::shared_ptr<Region>> Region::Map(int fd, off_t offset, uint32_t id, int num_ranks,
                                              size_t part_bytes) {
  const uint64_t size = SizeOf(num_ranks, part_bytes);
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  if (base == MAP_FAILED) {
    return ErrnoToStatus(errno, StrCat("mapping ", size, " bytes of shared memory"));
  }
  return std::shared_ptr<Region>(new Region(static_cast<char*>(base), offset, id, num_ranks, part_bytes));
}

Region::~Region() { munmap(base_, SizeOf(num_ranks_, part_bytes_)); }

Status Region::Reserve(int fd, int local_rank) {
  // The control block's page, and this rank's part. Not posix_fallocate, whose fallback writes.
  const off_t begin = offset_ + static_cast<off_t>(kPage + local_rank * Stride());
  for (const auto& [from, size] : {std::pair<off_t, size_t>(offset_, kPage), {begin, Stride()}}) {
    if (size == 0) continue;
    while (fallocate(fd, 0, from, static_cast<off_t>(size)) != 0) {
      if (errno == EINTR) continue;
      return ResourceExhaustedError(StrCat(
          "allocating ", size, " bytes of shared memory: ", ErrnoToStatus(errno, "fallocate").message()));
    }
  }
  return OkStatus();
}

void Region::Discard(int local_rank) {
  if (Stride() > 0) madvise(part(local_rank), Stride(), MADV_REMOVE);
}

Region::Control& Region::control() const { return *std::launder(reinterpret_cast<Control*>(base_)); }

char* Region::part(int local_rank) const { return base_ + kPage + local_rank * Stride(); }

void Region::Release() {
  const std::lock_guard<std::mutex> lock(mu_);
  released_ = true;
  if (retired_) return Discard(*retired_);
  if (static_cast<int>(control().num_released.fetch_add(1, std::memory_order_acq_rel)) + 1 < num_ranks_)
    return;
  // All parts, but not the control block, which IsReleased reads.
  if (Stride() > 0) madvise(base_ + kPage, num_ranks_ * Stride(), MADV_REMOVE);
}

void Region::MakeInaccessible(char* begin, char* end) {
  if (begin == end) return;
  // Fails only if the process has too many mappings. The old one then stays, and is not used.
  (void)mmap(begin, end - begin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void Region::Retire(int local_rank) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (retired_) return;
  retired_ = local_rank;
  if (released_) Discard(local_rank);
  char* const own = part(local_rank);
  MakeInaccessible(base_, own);
  MakeInaccessible(own + Stride(), base_ + SizeOf(num_ranks_, part_bytes_));
}

bool Region::IsReleased() const {
  return static_cast<int>(control().num_released.load(std::memory_order_acquire)) == num_ranks_;
}

}  // namespace ddprun
