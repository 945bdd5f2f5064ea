// The connections of one lane to the same lane on all other nodes, and the messages that are in flight on these
// connections.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/message_flow.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/patience.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

// A chunk has at most two exchanges of messages, and each exchange has connections of its own. On each connection,
// messages are in chunk order. So the second exchange of a chunk never waits for the first exchange of a later chunk,
// which a peer may never start.
inline constexpr int kNumExchanges = 2;

// Messages are posted, and then progress together: Move sends and receives what is possible without blocking, on all
// connections, so full socket buffers cannot cause a deadlock.
//   Threads: one caller.
class TcpMesh {
 public:
  struct Peer {
    std::array<UniqueFd, kNumExchanges> fds;  // non-blocking; empty for this node
    int rank = 0;
    std::string ends = {};  // result of EndsInWords for the connections
  };
  // A message to or from `node`. Its payload is the concatenation of `parts`, which must stay valid until the message
  // is complete.
  struct Message {
    int node = 0;
    std::vector<iovec> parts;
  };
  // Identifies the exchange that a message belongs to.
  struct Tag {
    Call call;
    uint64_t chunk = 0;
    uint32_t phase = 0;
    int exchange = 0;  // below kNumExchanges
  };

  // `peers`: indexed by node. `segment`, `monitor` and `patience` must outlive the mesh. `silence_limit`: a peer whose
  // kernel has not acknowledged sent data for this long counts as cut off.
  // `patience` limits the waits of Await.
  TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment, Monitor* monitor,
          Patience* patience);

  // Closes the connections. No other function may be called from then on.
  void Close();

  // Adds messages, at most one per node in each direction.
  //   REQUIRES: for each value of tag.exchange, the chunks of successive calls do not decrease. At most kMaxSlots
  //             successive chunks have messages at the same time.
  void Post(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives);
  // Returns true if at least one message is now complete. Never fails: a connection that is broken or has an unexpected
  // message stops moving, and Await returns the error when it is called for the chunk.
  //   Order: a message of a later operation is sent only after this lane has received everything of earlier operations
  //          from the same connection. A peer that leaves after an operation therefore has no unread input, which would
  //          discard the data that it sent last.
  bool Move();
  bool IsReceiving(uint64_t chunk) const { return num_receives_[chunk % kMaxSlots] > 0; }
  bool IsSending(uint64_t chunk) const { return num_sends_[chunk % kMaxSlots] > 0; }

  // Blocks until Move can continue or communication ends for `chunk`. Returns after at most an eighth of the silence
  // limit.
  //   REQUIRES: `chunk` is the earliest chunk that has messages.
  //   Errors:   Segment::EndOf(chunk). An unexpected message or a broken connection ends the communicator.
  Status Await(uint64_t chunk);

 private:
  // The flow of one direction of one connection, and the node at its other end.
  struct Flow {
    int node = 0;
    MessageFlow messages;
  };

  Flow& flow(int node, int exchange, bool sends) {
    return flows_[(static_cast<size_t>(node) * kNumExchanges + exchange) * 2 + sends];
  }
  // As Move, for one flow.
  bool Move(Flow& f);
  // True if `f` must not send yet; see Move.
  bool IsHeld(const Flow& f) const;
  // True if `f` has a message of `chunk`, which is the earliest chunk that has messages.
  static bool Concerns(const Flow& f, uint64_t chunk) {
    return !f.messages.empty() && f.messages.frame().chunk == chunk;
  }
  // Lists the sockets that may move data in polls_ and polled_.
  void ListPolls();
  // Returns the rank for which `chunk` waits; -1 if there is none.
  int AwaitedRank(uint64_t chunk) const;
  // Ends the communicator because `f` is kBroken or kForeign, and returns the error.
  Status Report(const Flow& f, uint64_t chunk);
  // Handles a broken data connection: returns the error that the monitor reports. If the monitor reports none
  // in time, ends the communicator with `why`.
  Status Broken(uint64_t chunk, const Status& why);
  // If the peer of `f` is cut off, ends the communicator and returns the error.
  Status CheckAnswers(const Flow& f, uint64_t chunk);

  std::vector<Peer> peers_;
  const int local_rank_;
  const Duration silence_limit_;
  Segment* const segment_;
  Monitor* const monitor_;
  Patience* const patience_;
  std::vector<Flow> flows_;  // see flow(); of each connection first the one that receives
  // By chunk % kMaxSlots: messages that are not complete.
  std::array<int, kMaxSlots> num_sends_ = {};
  std::array<int, kMaxSlots> num_receives_ = {};
  // Of Await; kept, so that it does not allocate.
  std::vector<pollfd> polls_;
  std::vector<Flow*> polled_;  // the flow of polls_[i + 1]
};

}  // namespace ddprun
