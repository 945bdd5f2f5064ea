#include "base/operation_page.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace ddprun {

const char* NameOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kAllToAll:
      return "all-to-all";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kReceive:
      return "receive";
    case OperationKind::kSplit:
      return "split";
    case OperationKind::kAllocate:
      return "allocate";
  }
  return "unknown operation";
}

bool IsMemory(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

std::optional<WorkerEvidence::Operation> ReadOperation(int fd) {
  std::array<char, sizeof(OperationPage)> bytes;
  // A worker may have shortened the memory; a mapping would then end the agent.
  if (pread(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return std::nullopt;
  uint32_t version = 0, waiting = 0;
  uint64_t operation = 0;
  std::memcpy(&version, bytes.data() + offsetof(OperationPage, version), sizeof(version));
  std::memcpy(&waiting, bytes.data() + offsetof(OperationPage, waiting), sizeof(waiting));
  std::memcpy(&operation, bytes.data() + offsetof(OperationPage, operation), sizeof(operation));
  if (version != OperationPage::kVersion || operation == OperationPage::kNone) return std::nullopt;
  return WorkerEvidence::Operation{
      .kind = NameOf(static_cast<OperationKind>(operation >> 56)),
      .number = static_cast<int64_t>(operation & OperationPage::kNumberMask),
      .in_flight = waiting > 0,
  };
}

}  // namespace ddprun
