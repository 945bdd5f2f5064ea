// Describes an operation. The descriptions must be equal on all ranks. Ranks compare them before they combine inputs;
// communicator.h names the differences that are detected later.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun::internal {

enum class OpKind : uint32_t {
  kAllReduce = 0,
  kReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kAllToAll = 4,
  kBroadcast = 5,
  kBarrier = 6,
  kSend = 7,
  kReceive = 8,
};

// Why the library itself started an operation.
enum class Purpose : uint16_t {
  kNone = 0,  // the program started it
  kSplit = 1,
  kAllocate = 2,
};

// Shared between processes and sent to other nodes in its in-memory layout (all machines are little-endian).
struct Call {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;  // kAllReduce, kReduce, kReduceScatter
  Purpose purpose = Purpose::kNone;
  int32_t root = 0;  // kReduce, kBroadcast; the peer of kSend and kReceive
  int32_t reserved = 0;
  uint64_t index = 0;      // number of the operation in its group, or of the message in its queue, from 0
  uint64_t num_bytes = 0;  // size of one rank's input
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 32);

// "all-reduce", "all-to-all"; "unknown operation" if `kind` is none of the values above.
const char* NameOf(OpKind kind);
// True if the operation combines the values of the ranks.
bool Reduces(OpKind kind);
// "all-reduce (mean) of 25 float32", "broadcast of 3 uint8 from rank 1", "barrier", "split".
std::string Describe(const Call& call);

// The error of ranks whose calls differ: "the calls of round 7 differ: operation 3 of rank 1 is barrier, operation 3 of rank 0 is
// all-reduce (sum) of 4 float32".
//   who, other_who: "rank 1".
//   operation:      what the numbers of the calls count.
Status CallsDiffer(int64_t round, std::string_view who, const Call& call, std::string_view other_who,
                   const Call& other, std::string_view operation = "operation");

}  // namespace ddprun::internal
