// Watches the other processes of a communicator, so that the death of one ends communication on all ranks.
//
// Every rank is connected to its node's hub (local rank 0), and hubs are connected to each other. A
// connection that breaks means that the peer is dead; its hub reports the dead rank's number to its node's
// ranks and to the other hubs. Broken data connections alone are not treated as a death.
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
  //   silence_limit: as given to WatchLink; for the error text when a connection breaks for lack of an
  //                  answer.
  //   peers:         for a hub, its node's other ranks and the other hubs; for any other rank, its hub.
  Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit, std::vector<Peer> peers);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Ends communication on all ranks, unless it has ended already.
  void SetDead(const absl::Status& why);
  // Sends the peers all end records that this node has. Called before this process may exit: other ranks of
  // the node may have written records to the segment that the hub's thread has not yet forwarded.
  void PassOnEnds();
  // Announces that this rank leaves as planned: from here on its peers do not treat its exit as a death, nor
  // it theirs. Blocks until all peers have read this or have exited, at most `patience`. Closing a connection
  // earlier, with unread input, could discard the data that was sent last.
  void Leave(int rank, uint64_t num_chunks, Duration patience);

  // Readable once a record has arrived since it was last read; for threads that wait in poll.
  int ended_fd() const { return ended_fd_.get(); }

 private:
  struct Inbox {
    EndRecord record;
    size_t have = 0;
  };
  static constexpr int kNoPeer = -1;

  void Run();
  // Reads from `peer`. An error means that the connection has ended, and says why.
  absl::Status Receive(size_t peer);
  void Close(size_t peer, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Applies `record` to the segment and sends it to the peers that receive it only from this process.
  void Spread(const EndRecord& record, int from_peer) ABSL_LOCKS_EXCLUDED(mu_);

  Segment* const segment_;
  const int local_rank_;
  const int64_t round_;
  const Duration silence_limit_;
  const std::vector<Peer> peers_;
  UniqueFd ended_fd_;
  UniqueFd stop_fd_;
  std::vector<Inbox> inboxes_;    // by peer; used by thread_ alone
  std::map<int, bool> has_left_;  // by rank; used by thread_ alone
  absl::Mutex mu_;                // serializes Spread
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool node_knows_dead_ ABSL_GUARDED_BY(mu_) = false;         // sent to the peers of this node
  bool other_nodes_know_dead_ ABSL_GUARDED_BY(mu_) = false;   // sent by this process to those of other nodes
  size_t num_closed_ ABSL_GUARDED_BY(mu_) = 0;                // of peers_
  Event all_closed_;                                          // set when all of peers_ are closed
  uint64_t fewest_chunks_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;  // least num_chunks of a kLeft record so far
  std::thread thread_;
};

}  // namespace ddprun
