// The memory of gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/array_ops.h"

namespace ddprun {

// An array that is aligned to 64 bytes and initialized to zero. Movable.
//   Threads: one caller at a time.
class Arena {
 public:
  Arena() = default;  // without elements
  // Memory that only this process uses.
  //   Errors: those of ArrayOps::Allocate.
  static StatusOr<Arena> Allocate(ArrayOps& ops, DType dtype, int64_t count) {
    Arena arena;
    DDPRUN_ASSIGN_OR_RETURN(arena.memory_, ops.Allocate(count * SizeOf(dtype)), "the memory of gradients");
    arena.all_ = {arena.memory_.get(), count, dtype, ops.device()};
    return arena;
  }
  // Memory that ranks of a node share, so that all-reduces do not copy; on a GPU, memory for NCCL. Collective; `count` is
  // equal on all ranks.
  //   Errors: those of Communicator::Allocate.
  static StatusOr<Arena> AllocateShared(Communicator comm, const Device& device, DType dtype, int64_t count) {
    Arena arena;
    DDPRUN_ASSIGN_OR_RETURN(arena.buffer_, comm.Allocate(dtype, count, device));
    arena.all_ = arena.buffer_.tensor();
    return arena;
  }

  [[nodiscard]] const Tensor& all() const { return all_; }
  // `count` elements from `begin` on.
  [[nodiscard]] Tensor View(int64_t begin, int64_t count) const {
    return {static_cast<char*>(all_.data) + begin * SizeOf(all_.dtype), count, all_.dtype, all_.device};
  }

 private:
  std::shared_ptr<void> memory_;  // one of the two owns the array
  Buffer buffer_;
  Tensor all_;
};

}  // namespace ddprun
