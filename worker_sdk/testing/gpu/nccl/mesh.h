// The connections of a communicator: one between each two ranks. What a rank sends to another one arrives in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker_sdk/testing/gpu/nccl/rendezvous.h"
#include "worker_sdk/testing/gpu/nccl/sockets.h"

namespace ddprun::stand_in {

// Precedes the bytes of a message.
struct Header {
  uint32_t call;  // what both ranks must have called; kReady: the peer waits for a message
  int32_t dtype, op, root;
  uint64_t count;  // of elements
  uint64_t bytes;  // of this message

  static constexpr uint32_t kReady = 0xFFFFFFFF;
  bool operator==(const Header&) const = default;
};

struct Outgoing {
  int peer;
  Header header;
  const std::byte* bytes = nullptr;
};

// Must have exactly this header.
struct Incoming {
  int peer;
  Header header;
  std::byte* bytes = nullptr;
};

// What one operation sends and receives, in the order of the lists for each peer.
struct Messages {
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  std::vector<int> ready;  // peers of which a kReady must arrive, once for each time in the list
};

//   Threads: one caller at a time.
class Mesh {
 public:
  // Connects with all other ranks.
  Outcome Connect(const UniqueId& id, int rank, int num_ranks, int device, const Cancel& cancel);

  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }
  uint64_t seed() const { return all_.seed; }
  // Whether two ranks use the same device of the same process.
  bool SharesDevice() const;

  // Sends and receives everything. If the outcome is not kDone, the mesh cannot be used again. kDifferent: a peer has sent
  // another header.
  Outcome Exchange(const Messages& messages, const Cancel& cancel);

 private:
  // What was read of a message.
  struct Arriving {
    Header header;
    size_t header_bytes = 0;  // of the header
    int ready = 0;            // kReady that no operation has used yet
    bool complete() const { return header_bytes == sizeof header; }
  };
  class Progress;

  int rank_ = 0, num_ranks_ = 0;
  Membership all_;
  std::vector<UniqueFd> peers_;  // by rank; that of this rank is empty
  std::vector<Arriving> arriving_;
};

}  // namespace ddprun::stand_in
