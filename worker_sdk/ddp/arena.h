// The memory of gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

// An array that is aligned to 64 bytes and initialized to zero.
//   Threads: one caller at a time.
class Arena {
 public:
  Arena() = default;  // without elements
  // Memory of this process.
  //   Errors: kResourceExhausted: there is not enough memory.
  static StatusOr<Arena> Allocate(DType dtype, int64_t count) {
    Arena arena;
    arena.all_ = {nullptr, count, dtype};
    arena.memory_.reset(
        static_cast<char*>(::operator new[](arena.num_bytes(), std::align_val_t{64}, std::nothrow)));
    if (arena.memory_ == nullptr) {
      return ResourceExhaustedError(StrCat("no memory for ", arena.num_bytes(), " bytes of gradients"));
    }
    arena.all_.data = arena.memory_.get();
    arena.Zero();
    return arena;
  }
  // Memory that ranks of a node share, so that all-reduces do not copy. Collective; `count` is equal on all ranks.
  //   Errors: those of Communicator::Allocate.
  static StatusOr<Arena> AllocateShared(Communicator comm, DType dtype, int64_t count) {
    Arena arena;
    DDPRUN_ASSIGN_OR_RETURN(arena.buffer_, comm.Allocate(dtype, count));
    arena.all_ = arena.buffer_.tensor();
    return arena;
  }

  void Zero() {
    if (all_.count > 0) std::memset(all_.data, 0, num_bytes());
  }
  // `count` elements from `begin` on.
  [[nodiscard]] Tensor View(int64_t begin, int64_t count) const {
    return {static_cast<char*>(all_.data) + begin * SizeOf(all_.dtype), count, all_.dtype};
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  [[nodiscard]] size_t num_bytes() const { return static_cast<size_t>(all_.count * SizeOf(all_.dtype)); }

  std::unique_ptr<char[], Free> memory_;  // one of the two owns the array
  Buffer buffer_;
  Tensor all_;
};

}  // namespace ddprun
