#include "worker_sdk/comm/host/pair_ring.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "worker_sdk/core/strings.h"

namespace ddprun {

// Zero-filled memory is a valid Control: the memory of a memfd starts so.
struct PairRing::Control {
  alignas(kAlign) std::atomic<uint64_t> published;  // by the sender: bytes since the beginning
  alignas(kAlign) std::atomic<uint64_t> released;   // by the receiver
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(PairRing::kCapacity % PairRing::kAlign == 0);

PairRing::PairRing(void* memory) : memory_(static_cast<char*>(memory)) {
  static_assert(sizeof(Control) <= kBytes - kCapacity);
}

PairRing::Control& PairRing::control() const { return *std::launder(reinterpret_cast<Control*>(memory_)); }

// The positions are stored and loaded with sequential consistency, because Bell relies on it.

size_t PairRing::Room(size_t wanted) {
  const auto room = [this] {
    const uint64_t used = position_ - limit_ + (kAlign - 1);  // with the padding of the message
    return used < kCapacity ? kCapacity - used : 0;
  };
  if (room() < wanted) limit_ = control().released.load();
  return room();
}

void PairRing::Put(const void* data, size_t n) {
  if (n == 0) return;
  const size_t at = position_ % kCapacity, first = std::min(n, kCapacity - at);
  std::memcpy(this->data() + at, data, first);
  std::memcpy(this->data(), static_cast<const char*>(data) + first, n - first);
  position_ += n;
}

void PairRing::Publish() { control().published.store(position_); }

size_t PairRing::Available() {
  if (limit_ == position_) limit_ = control().published.load();
  return limit_ - position_;
}

void PairRing::Take(void* out, size_t n) {
  if (n == 0) return;
  const size_t at = position_ % kCapacity, first = std::min(n, kCapacity - at);
  std::memcpy(out, data() + at, first);
  std::memcpy(static_cast<char*>(out) + first, data(), n - first);
  position_ += n;
}

void PairRing::Release() { control().released.store(position_); }

void PairRing::EndMessage() { position_ = (position_ + kAlign - 1) / kAlign * kAlign; }

StatusOr<PairRingMemory> PairRingMemory::Map(int fd, size_t offset) {
  // Without this, a page that the machine cannot provide would end the process with SIGBUS.
  while (fallocate(fd, 0, static_cast<off_t>(offset), PairRing::kBytes) != 0) {
    if (errno == EINTR) continue;
    return ResourceExhaustedError(StrCat("a queue between two ranks of a node needs ", PairRing::kBytes,
                                         " bytes of shared memory: ", std::strerror(errno)));
  }
  void* base = mmap(nullptr, PairRing::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                    static_cast<off_t>(offset));
  if (base == MAP_FAILED) return ErrnoToStatus(errno, "mapping a queue between two ranks of a node");
  return PairRingMemory(base);
}

PairRingMemory::~PairRingMemory() {
  if (base_ != nullptr) munmap(base_, PairRing::kBytes);
}

}  // namespace ddprun
