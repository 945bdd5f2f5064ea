// Collective operations and messages, over the connections of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker_sdk/testing/gpu/driver.h"
#include "worker_sdk/testing/gpu/nccl/declarations.h"
#include "worker_sdk/testing/gpu/nccl/mesh.h"

namespace ddprun::stand_in {

enum class Kind : uint32_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kSend,
  kReceive,
  kFinalize
};

// The arguments of a function of NCCL.
struct Operation {
  const char* call;
  Kind kind;
  size_t count;
  ncclDataType_t dtype;
  ncclRedOp_t op;  // of reductions, otherwise ncclSum
  int root;        // or the peer of a message
  Region in, out;  // empty if the rank has no input or output

  bool is_message() const { return kind == Kind::kSend || kind == Kind::kReceive; }
};

// The bytes that are read and written by a rank; 0 where NCCL ignores the pointer.
size_t BytesIn(const Operation& operation, int rank, int num_ranks);
size_t BytesOut(const Operation& operation, int rank, int num_ranks);

// The operations of one group on one communicator and stream.
class Batch {
 public:
  explicit Batch(std::vector<Operation> operations) : operations_(std::move(operations)) {}

  // Runs collectives in order, and then all messages at once. Sums are in an order that `number` and the seed of the mesh
  // decide. kDifferent: the ranks' operations differ.
  Outcome Run(Mesh& mesh, uint64_t number, const Cancel& cancel) const;
  // Releases the memory.
  void Drop() { operations_.clear(); }

 private:
  std::vector<Operation> operations_;
};

// Waits until all ranks have called it.
Outcome Barrier(Mesh& mesh, const Cancel& cancel);

}  // namespace ddprun::stand_in
