// Watches over the other processes of a communicator, so that a dead one ends everything at once.
//
// Every rank is connected to its node's hub (local rank 0), hubs to each other. A connection that breaks is a
// death; the hub that sees it tells its ranks and the other hubs, with the dead rank's number. Data
// connections decide nothing.
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
#include "os/unique_fd.h"
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
    std::string ends = {};  // which nodes the connection joins, in words; of those to other nodes
  };

  // `silence_limit`: that of WatchLink, for the error when such a connection breaks for want of an answer.
  // `peers`: the hub alone for a rank that is none; for the hub its node's ranks and the other hubs.
  // `segment` belongs to the caller and outlives this. Starts a thread that sleeps until something ends.
  Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit, std::vector<Peer> peers);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Ends communication on all ranks, unless it is over already.
  void SetDead(const absl::Status& why);
  // Tells the others all ends that this node knows of. To be called before this process may go: others of the
  // node may have written to the segment what the hub's thread has not yet passed on.
  void PassOnEnds();
  // This rank leaves as planned: a later end of its process is no death, and neither is a peer's end to it.
  // Returns when all peers have read this or are gone, at most `patience` later: to close a connection
  // before, with input in it that nobody has read, may destroy what was sent last.
  void Leave(int rank, uint64_t num_chunks, Duration patience);

  // Readable after anything ended since it was last read: for who waits in poll instead of the segment.
  int ended_fd() const { return ended_fd_.get(); }

 private:
  struct Inbox {
    EndRecord record;
    size_t have = 0;
  };
  static constexpr int kNobody = -1;

  void Run();
  // OK: the connection goes on. Else why it does not.
  absl::Status Receive(size_t peer);
  void Close(size_t peer, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes `record` known here and to everybody who has it from this process alone.
  void Spread(const EndRecord& record, int from_peer) ABSL_LOCKS_EXCLUDED(mu_);

  Segment* const segment_;
  const int local_rank_;
  const int64_t round_;
  const Duration silence_limit_;
  const std::vector<Peer> peers_;
  UniqueFd ended_fd_;
  UniqueFd stop_fd_;
  std::vector<Inbox> inboxes_;    // by peer; of the thread alone
  std::map<int, bool> has_left_;  // by rank; of the thread alone
  absl::Mutex mu_;                // one Spread at a time
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool node_knows_dead_ ABSL_GUARDED_BY(mu_) = false;         // peers of this node were told
  bool other_nodes_know_dead_ ABSL_GUARDED_BY(mu_) = false;   // those of other nodes were told by this one
  size_t num_closed_ ABSL_GUARDED_BY(mu_) = 0;                // of peers_
  Event all_closed_;                                          // of peers_, if there are any
  uint64_t fewest_chunks_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;  // after which anybody left
  std::thread thread_;
};

}  // namespace ddprun
