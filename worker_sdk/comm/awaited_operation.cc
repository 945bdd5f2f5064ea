#include "worker_sdk/comm/awaited_operation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
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
  page->waiting.fetch_add(1, std::memory_order_release);
}

AwaitedOperation::~AwaitedOperation() {
  if (OperationPage* const page = TheMemory().page) page->waiting.fetch_sub(1, std::memory_order_release);
}

int OperationPageFd() { return TheMemory().fd.get(); }

}  // namespace ddprun::internal
