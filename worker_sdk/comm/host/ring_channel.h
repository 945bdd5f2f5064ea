// The messages between two ranks of a node.
#pragma once

#include <cstddef>
#include <optional>

#include "worker_sdk/comm/host/bell.h"
#include "worker_sdk/comm/host/channel.h"
#include "worker_sdk/comm/host/pair_ring.h"

namespace ddprun {

// A ring is reserved when its direction is first used.
class RingChannel : public Channel {
 public:
  // `fd`, `out_offset`, `in_offset`: the memory of the two rings. `peer`: rung when something was sent or received. Both
  // must outlive the channel.
  RingChannel(int fd, size_t out_offset, size_t in_offset, Bell* peer)
      : out_{.fd = fd, .offset = out_offset}, in_{.fd = fd, .offset = in_offset}, peer_(peer) {}

  Moved Send(Transfer& transfer) override;
  Moved Receive(Transfer& transfer) override;
  bool IsExhausted() const override { return true; }

 private:
  struct End {
    int fd;
    size_t offset;
    std::optional<PairRingMemory> memory = {};
    std::optional<PairRing> ring = {};
  };
  // The ring; null if its memory could not be reserved.
  PairRing* Open(End& end);

  End out_, in_;
  Bell* const peer_;
};

}  // namespace ddprun
