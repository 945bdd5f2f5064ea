// Watches the other processes of a communicator, so that the death of one ends communication on all ranks.
//
// Every rank is connected to its node's hub (local rank 0), and hubs are connected to each other. If one of
// these connections breaks, the peer is dead, and its hub reports the dead rank's number to the ranks of its
// node and to the other hubs. A broken data connection alone is not treated as a death.
//
//     node 0                            node 1
//     rank 1 --+                        +-- rank 4
//              | unix              unix |
//     rank 2 --+-- rank 0 -- TCP -- rank 3 --- rank 5
//                  (hub)            (hub)
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/event.h"
#include "base/time.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {

//   Threads: any.
class Monitor {
 public:
  struct Peer {
    UniqueFd fd;
    int rank = 0;
    bool on_other_node = false;
    std::string ends = {};  // EndsInWords of the connection, if it is to another node
  };

  // Starts the monitor thread.
  //   segment:       outlives this.
  //   silence_limit: the limit that WatchLink enforces; appears in the error text when a connection breaks
  //                  because nothing answered.
  //   peers:         for a hub, its node's other ranks and the other hubs; for any other rank, its hub.
  Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit, std::vector<Peer> peers);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Ends communication on all ranks, unless it has already ended.
  void SetDead(const absl::Status& why);
  // Sends all end records in this node's segment to the peers. Must be called before this process may exit:
  // other ranks of the node may have written records to the segment that the hub's thread has not yet
  // forwarded.
  void PassOnEnds();
  // Announces that this rank leaves as planned: from then on, its peers do not treat its exit as a death, and
  // this rank does not treat theirs as one. Blocks until all peers have read the announcement or have exited,
  // at most for `patience`. Closing a connection earlier, with unread input, could discard the data that was
  // sent last.
  void Leave(int rank, uint64_t num_chunks, Duration patience);

  // An eventfd that is readable if an end record was received or created since the last read. For threads
  // that wait in poll.
  int ended_fd() const { return ended_fd_.get(); }

 private:
  struct Inbox {
    EndRecord record;
    size_t have = 0;
  };
  static constexpr int kNoPeer = -1;

  void Run();
  // Reads from `peer`. If the connection has ended, returns an error with the reason.
  absl::Status Receive(size_t peer);
  void Close(size_t peer, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Applies `record` to the segment and sends it to the peers that receive it from no other process.
  void Spread(const EndRecord& record, int from_peer) ABSL_LOCKS_EXCLUDED(mu_);

  Segment* const segment_;
  const int local_rank_;
  const int64_t round_;
  const Duration silence_limit_;
  const std::vector<Peer> peers_;
  UniqueFd ended_fd_;
  UniqueFd stop_fd_;
  std::vector<Inbox> inboxes_;    // by peer; used only by thread_
  std::map<int, bool> has_left_;  // by rank; used only by thread_
  absl::Mutex mu_;                // serializes Spread
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool node_knows_dead_ ABSL_GUARDED_BY(mu_) = false;         // kDead was sent to peers of this node
  bool other_nodes_know_dead_ ABSL_GUARDED_BY(mu_) = false;   // kDead was sent to peers of other nodes
  size_t num_closed_ ABSL_GUARDED_BY(mu_) = 0;                // number of closed peers_
  Event all_closed_;                                          // set when all of peers_ are closed
  uint64_t fewest_chunks_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;  // smallest num_chunks in a kLeft record so far
  std::thread thread_;
};

}  // namespace ddprun
