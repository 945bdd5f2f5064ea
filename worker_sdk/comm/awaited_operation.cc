#include "worker_sdk/comm/awaited_operation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "base/operation_page.h"
#include "os/descriptor.h"

namespace ddprun::internal {
namespace {

// KindOf converts one to the other.
static_assert(static_cast<int>(OpKind::kAllReduce) == static_cast<int>(OperationKind::kAllReduce) &&
              static_cast<int>(OpKind::kBarrier) == static_cast<int>(OperationKind::kBarrier) &&
              static_cast<int>(OpKind::kReceive) == static_cast<int>(OperationKind::kReceive));

struct Memory {
  UniqueFd fd;
  OperationPage* page = nullptr;
};

Memory NewMemory() {
  Memory memory{.fd = UniqueFd(memfd_create("ddprun-operation", MFD_CLOEXEC))};
  if (!memory.fd || ftruncate(memory.fd.get(), sizeof(OperationPage)) != 0) return {};
  void* const mapped =
      mmap(nullptr, sizeof(OperationPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd.get(), 0);
  if (mapped == MAP_FAILED) return {};
  memory.page = std::construct_at(static_cast<OperationPage*>(mapped));
  memory.page->version.store(OperationPage::kVersion);
  return memory;
}

// Never destroyed, because threads may wait until the process exits.
const Memory& TheMemory() {
  static const auto* const memory = new Memory(NewMemory());
  return *memory;
}

// When the first of the threads that wait now began to.
std::atomic<uint64_t> waits_since{0};

uint64_t NowNanos() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                               std::chrono::nanoseconds(1));
}

OperationKind KindOf(const Call& call) {
  switch (call.purpose) {
    case Purpose::kSplit:
      return OperationKind::kSplit;
    case Purpose::kAllocate:
      return OperationKind::kAllocate;
    case Purpose::kNone:
      break;
  }
  return static_cast<OperationKind>(call.kind);
}

}  // namespace

AwaitedOperation::AwaitedOperation(const Call& call) {
  OperationPage* const page = TheMemory().page;
  if (page == nullptr) return;
  page->operation.store(OperationPage::Pack(KindOf(call), call.index), std::memory_order_relaxed);
  if (page->waiting.fetch_add(1) == 0) waits_since.store(NowNanos());
}

AwaitedOperation::~AwaitedOperation() {
  OperationPage* const page = TheMemory().page;
  if (page == nullptr) return;
  // Read before another thread can begin the next wait.
  const uint64_t waited = NowNanos() - waits_since.load();
  if (page->waiting.fetch_sub(1) != 1) return;
  uint64_t before = page->waited.load();
  while (before != OperationPage::kUnknown && !page->waited.compare_exchange_weak(before, before + waited)) {
  }
}

void WaitsAreUnknown() {
  if (OperationPage* const page = TheMemory().page) page->waited.store(OperationPage::kUnknown);
}

int OperationPageFd() { return TheMemory().fd.get(); }

}  // namespace ddprun::internal
