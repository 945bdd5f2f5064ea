// The connections of one lane to the same lane of all other nodes, and the exchange of messages over them.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/unique_fd.h"

namespace ddprun {

// Called before a thread sleeps for others; does first what needs nobody, or older things only.
using CatchUp = absl::FunctionRef<absl::Status()>;

//   Threads: one caller.
class TcpMesh {
 public:
  struct Peer {
    UniqueFd fd;  // non-blocking; none for the own node
    int rank = 0;
  };
  // A message to or from `node`; `parts` are its pieces in order.
  struct Message {
    int node = 0;
    std::vector<iovec> parts;
  };
  // Which exchange a message belongs to: a chunk has several.
  struct Tag {
    Call call;
    uint64_t chunk = 0;
    uint32_t phase = 0;
  };

  // `peers`: by node. `segment` and `monitor` outlive this.
  TcpMesh(std::vector<Peer> peers, int local_rank, Segment* segment, Monitor* monitor);

  // Sends and receives all at once, at most one message each way and node, and returns when all are through.
  // No order between them matters, and full pipes cannot lock up: whatever can move moves.
  //   Errors: the communicator's end (Segment::EndOf the chunk). A message that is not the expected one, or a
  //           connection that breaks, is made that end.
  absl::Status Exchange(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives,
                        CatchUp catch_up);

 private:
  absl::Status AwaitEvent(uint64_t chunk, absl::Span<const short> events_by_node);
  absl::Status Broken(int node, uint64_t chunk);

  const std::vector<Peer> peers_;
  const int local_rank_;
  Segment* const segment_;
  Monitor* const monitor_;
};

}  // namespace ddprun
