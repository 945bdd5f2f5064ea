// The collective operation for which a worker waits, and how long it has waited for operations. The worker shares this memory with its
// agent, which can also read it while the worker is stopped. The worker sends the descriptor with a WorkerPage (base/worker_message.h).
//
// Free of Abseil and protobuf, because it is part of the worker library.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "base/worker_evidence.h"

namespace ddprun {

// The kinds of operations. The numbers are those in the page; up to kReceive they are those of the SDK's wire format.
enum class OperationKind : uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kAllToAll = 4,
  kBroadcast = 5,
  kBarrier = 6,
  kSend = 7,
  kReceive = 8,
  kSplit = 64,
  kAllocate = 65,
};

// "all-reduce", "all-to-all"; "unknown operation" if `kind` is none of the values above.
const char* NameOf(OperationKind kind);

// The layout of the memory. The worker and its agent may be of different releases; a release that cannot keep the layout has another
// version.
//   Threads: any; the worker's threads write, the agent reads.
struct OperationPage {
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kNone = ~uint64_t{0};  // no operation was awaited
  static constexpr uint64_t kUnknown = ~uint64_t{0};
  static constexpr uint64_t kNumberMask = (uint64_t{1} << 56) - 1;

  static constexpr uint64_t Pack(OperationKind kind, uint64_t number) {
    return (uint64_t{static_cast<uint8_t>(kind)} << 56) | (number & kNumberMask);
  }

  std::atomic<uint32_t> version{0};
  std::atomic<uint32_t> waiting{0};        // number of threads that wait for an operation
  std::atomic<uint64_t> operation{kNone};  // of the wait that has begun last: Pack(kind, number)
  // How long some thread has waited, in nanoseconds, without the wait that goes on. kUnknown: operations wait for each other elsewhere.
  std::atomic<uint64_t> waited{0};
};
static_assert(sizeof(OperationPage) == 24 && std::atomic<uint64_t>::is_always_lock_free);

// Returns whether `fd` is memory that can be read without blocking: neither a file of a file system nor a pipe.
bool IsMemory(int fd);
// Reads the page of a worker. If no operation was awaited yet, the result has no kind, and is not in flight. nullopt: the memory is no page
// of this version.
//   REQUIRES: IsMemory(fd).
std::optional<WorkerEvidence::Operation> ReadOperation(int fd);
// Reads how long the worker has waited. nullopt: this is not known, because it has waited for no operation yet, or OperationPage::kUnknown,
// or the memory is no page of this version.
//   REQUIRES: IsMemory(fd).
std::optional<Duration> ReadWaited(int fd);

}  // namespace ddprun
