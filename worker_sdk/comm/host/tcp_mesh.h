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
#include "os/unique_fd.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

// Called before a thread sleeps for others; does first what needs nobody, or older things only.
using CatchUp = absl::FunctionRef<absl::Status()>;

//   Threads: one caller.
class TcpMesh {
 public:
  struct Peer {
    UniqueFd fd;  // non-blocking; none for the own node
    int rank = 0;
    std::string ends = {};  // which nodes it joins, in words
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

  // `peers`: by node. `segment` and `monitor` outlive this. `silence_limit`: a peer that has not even
  // acknowledged what was sent to it for so long is cut off.
  TcpMesh(std::vector<Peer> peers, int local_rank, Duration silence_limit, Segment* segment,
          Monitor* monitor);

  // Sends and receives all at once, at most one message each way and node, and returns when all are through.
  // No order between them matters, and full pipes cannot lock up: whatever can move moves.
  //   Errors: the communicator's end (Segment::EndOf the chunk). A message that is not the expected one, or a
  //           connection that breaks, is made that end.
  absl::Status Exchange(const Tag& tag, std::vector<Message> sends, std::vector<Message> receives,
                        CatchUp catch_up);

 private:
  absl::Status AwaitEvent(uint64_t chunk, absl::Span<const short> events_by_node);
  // A broken data connection: the end that the monitor knows, else `why`.
  absl::Status Broken(uint64_t chunk, const absl::Status& why);
  // OK, or the end because `node` is cut off.
  absl::Status CheckAnswers(int node, uint64_t chunk);

  const std::vector<Peer> peers_;
  const int local_rank_;
  const Duration silence_limit_;
  // By node: since when nothing was received or sent in an exchange that waits for it.
  std::vector<TimePoint> still_since_;
  Segment* const segment_;
  Monitor* const monitor_;
};

}  // namespace ddprun
