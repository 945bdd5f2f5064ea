// The connections of one lane to the same lane on all other nodes, and the exchange of messages over these
// connections.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/patience.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/core/function_ref.h"

namespace ddprun {

// Invoked before a thread blocks on other ranks. Completes the work that depends only on earlier chunks.
using CatchUp = FunctionRef<Status()>;

//   Threads: one caller.
class TcpMesh {
 public:
  struct Peer {
    UniqueFd fd;  // non-blocking; empty for this node
    int rank = 0;
    std::string ends = {};  // result of EndsInWords for the connection
  };
  // A message to or from `node`. Its payload is the concatenation of `parts`.
  struct Message {
    int node = 0;
    std::vector<iovec> parts;
  };
  // Identifies the exchange that a message belongs to. A chunk may have several exchanges.
  struct Tag {
    Call call;
    uint64_t chunk = 0;
    uint32_t phase = 0;
  };

  // `peers`: indexed by node. `segment`, `monitor` and `patience` must outlive the mesh. `silence_limit`: a peer whose
  // kernel has not acknowledged sent data for this long counts as cut off.
  // `patience` limits the waits of Exchange.
  TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment, Monitor* monitor,
          Patience* patience);

  // Sends and receives messages concurrently, at most one per node in each direction, and returns when all
  // are complete. All messages progress independently, so full socket buffers cannot cause a deadlock.
  //   Errors: Segment::EndOf(tag.chunk). An unexpected message or a broken connection ends the communicator.
  Status Exchange(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives,
                  CatchUp catch_up);

 private:
  Status AwaitEvent(uint64_t chunk, std::span<const short> events_by_node);
  // Handles a broken data connection: returns the error that the monitor reports. If the monitor reports none
  // in time, ends the communicator with `why`.
  Status Broken(uint64_t chunk, const Status& why);
  // If `node` is cut off, ends the communicator and returns the error.
  Status CheckAnswers(int node, uint64_t chunk);

  const std::vector<Peer> peers_;
  const int local_rank_;
  const Duration silence_limit_;
  // Indexed by node: when the last byte was sent or received in the current exchange, or when the exchange
  // started.
  std::vector<TimePoint> last_moved_;
  Segment* const segment_;
  Monitor* const monitor_;
  Patience* const patience_;
};

}  // namespace ddprun
