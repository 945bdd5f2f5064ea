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

namespace {

// The bytes of the page. A worker may have shortened the memory; a mapping would then end the agent.
using Bytes = std::array<char, sizeof(OperationPage)>;

template <typename T>
T At(const Bytes& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// The beginning of the page, which has at least the first `needed` bytes; the rest is zero. nullopt: the memory is no page of this version.
std::optional<Bytes> ReadPage(int fd, size_t needed) {
  Bytes bytes = {};
  if (pread(fd, bytes.data(), bytes.size(), 0) < static_cast<ssize_t>(needed)) return std::nullopt;
  if (At<uint32_t>(bytes, offsetof(OperationPage, version)) != OperationPage::kVersion) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<WorkerEvidence::Operation> ReadOperation(int fd) {
  // A release without the field `waited` has a shorter page.
  const std::optional<Bytes> page = ReadPage(fd, offsetof(OperationPage, waited));
  if (!page) return std::nullopt;
  const auto operation = At<uint64_t>(*page, offsetof(OperationPage, operation));
  if (operation == OperationPage::kNone) return WorkerEvidence::Operation{};
  return WorkerEvidence::Operation{
      .kind = NameOf(static_cast<OperationKind>(operation >> 56)),
      .number = static_cast<int64_t>(operation & OperationPage::kNumberMask),
      .in_flight = At<uint32_t>(*page, offsetof(OperationPage, waiting)) > 0,
  };
}

std::optional<Duration> ReadWaited(int fd) {
  const std::optional<Bytes> page = ReadPage(fd, sizeof(OperationPage));
  if (!page || At<uint64_t>(*page, offsetof(OperationPage, operation)) == OperationPage::kNone)
    return std::nullopt;
  const auto waited = At<uint64_t>(*page, offsetof(OperationPage, waited));
  // A worker may write anything; a difference of two such times must not overflow.
  if (waited > uint64_t{1} << 60) return std::nullopt;
  return Duration(static_cast<int64_t>(waited));
}

}  // namespace ddprun
