// Describes an operation. The descriptions must be equal on all ranks. Ranks compare them before they combine inputs;
// communicator.h names the differences that are detected later.
#pragma once

#include <cstdint>
#include <string>

#include "ddprun/communicator.h"
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
};

// Shared between processes and sent to other nodes in its in-memory layout (all machines are little-endian).
struct Call {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;  // kAllReduce, kReduce, kReduceScatter
  uint16_t reserved = 0;
  int32_t root = 0;  // kReduce, kBroadcast
  int32_t reserved2 = 0;
  uint64_t index = 0;      // number of the operation in its group, from 0
  uint64_t num_bytes = 0;  // size of one rank's input
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 32);

// "all-reduce", "all-to-all"; "unknown operation" if `kind` is none of the values above.
const char* NameOf(OpKind kind);
// True if the operation combines the values of the ranks.
bool Reduces(OpKind kind);
// "all-reduce (mean) of 25 float32", "broadcast of 3 uint8 from rank 1", "barrier".
std::string Describe(const Call& call);

}  // namespace ddprun::internal
