// The connections of one lane to the same lane of all other nodes, and the exchange of messages over them.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/time.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

// Invoked before a thread blocks on other ranks; completes work that depends only on earlier chunks.
using CatchUp = absl::FunctionRef<absl::Status()>;

//   Threads: one caller.
class TcpMesh {
 public:
  struct Peer {
    UniqueFd fd;  // non-blocking; empty for this node
    int rank = 0;
    std::string ends = {};  // EndsInWords of the connection
  };
  // A message to or from `node`; `parts` are its pieces in order.
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

  // `peers`: by node. `segment` and `monitor` must outlive this. `silence_limit`: a peer whose kernel has not
  // acknowledged sent data for this long counts as cut off.
  TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment,
          Monitor* monitor);

  // Sends and receives messages concurrently, at most one per node in each direction, and returns when all
  // are complete. All messages progress independently, so full socket buffers cannot cause a deadlock.
  //   Errors: Segment::EndOf(tag.chunk). An unexpected message or a broken connection ends the communicator.
  absl::Status Exchange(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives,
                        CatchUp catch_up);

 private:
  absl::Status AwaitEvent(uint64_t chunk, absl::Span<const short> events_by_node);
  // Handles a broken data connection: returns the error that the monitor reports. If it reports none in time,
  // ends the communicator with `why`.
  absl::Status Broken(uint64_t chunk, const absl::Status& why);
  // If `node` is cut off, ends the communicator and returns the error.
  absl::Status CheckAnswers(int node, uint64_t chunk);

  const std::vector<Peer> peers_;
  const int local_rank_;
  const Duration silence_limit_;
  // By node: time of the last byte sent or received in the current exchange; initially the exchange's start.
  std::vector<TimePoint> last_moved_;
  Segment* const segment_;
  Monitor* const monitor_;
};

}  // namespace ddprun
