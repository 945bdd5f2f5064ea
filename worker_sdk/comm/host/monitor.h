// Watches the other processes of a communicator, so that the death of one process ends communication on all
// ranks.
//
// Every rank is connected to its node's hub (local rank 0), and hubs are connected to each other. If one of
// these connections breaks, the peer counts as dead. A hub that detects a death sends a record with the dead
// rank's number to the ranks of its node and to the other hubs. A broken data connection alone does not count
// as a death.
//
//     node 0                            node 1
//     rank 1 --+                        +-- rank 4
//              | unix              unix |
//     rank 2 --+-- rank 0 -- TCP -- rank 3 --- rank 5
//                  (hub)            (hub)
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/time.h"
#include "ddprun/status.h"
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
    std::string ends = {};  // result of EndsInWords for a connection to another node
  };

  // Starts the monitor thread.
  //   segment:       must outlive the monitor.
  //   silence_limit: the limit that WatchLink enforces; named in the error when a connection breaks because
  //                  no answer arrived.
  //   peers:         for a hub, its node's other ranks and the other hubs; for any other rank, its hub.
  //   on_dead:       called at most once, when communication has ended with an error; from any thread, while no lock of
  //                  the monitor is held.
  //   on_note:       compares the calls of another rank with those of this one; an error ends communication on all ranks.
  //                  Called from the monitor thread.
  Monitor(Segment* segment, int local_rank, int64_t round, Duration silence_limit, std::vector<Peer> peers,
          std::function<void(const Status& why)> on_dead = nullptr,
          std::function<Status(int rank, const CallNote& note)> on_note = nullptr);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Ends communication on all ranks with the error `why`, unless communication has already ended.
  void SetDead(const Status& why);
  // Asks all ranks whether they run, if no rank has asked yet. The monitor threads answer; Segment has the answers.
  void Ask() { Spread(AskRecord(round_), kNoPeer); }
  // Sends `note`, the calls of this rank, to all ranks of the group. Best effort: peers that do not read are left out. `rank`:
  // this one's number in the world. Does not block.
  void PostNote(int rank, const CallNote& note) { SpreadNote(NoteRecord(round_, rank, note), kNoPeer); }
  // Sends all end records in this node's segment to the peers. Must be called before this process may exit:
  // the segment may have records of other ranks that the hub's thread has not yet forwarded.
  void PassOnEnds();
  // Announces that this rank leaves as planned. After that, the peers do not treat this rank's exit as a
  // death, and this rank does not treat a peer's exit as a death. Blocks until all peers have read the
  // announcement or have exited, at most for `patience`. If a connection were closed earlier, while it has
  // unread input, the data that was sent last could be lost.
  void Leave(int rank, uint64_t num_chunks, Duration patience);

  // An eventfd, for threads that wait in poll. It is readable if an end record was received or created since
  // it was last read.
  int ended_fd() const { return ended_fd_.get(); }

 private:
  struct Inbox {
    EndRecord record;
    size_t have = 0;
  };
  static constexpr int kNoPeer = -1;

  void Run();
  // Reads from `peer`. If the connection has ended, returns an error with the reason.
  Status Receive(size_t peer);
  void Close(size_t peer, const Status& why);
  // Applies `record` to the segment and sends it to the peers that receive it from no other process.
  void Spread(const EndRecord& record, int from_peer);
  // Sends `record` to the peers of this node, and to those on other nodes, except `from_peer`.
  void SendLocked(const EndRecord& record, int from_peer, bool to_node, bool to_other_nodes);
  // Forwards a kNote record, unless an equal note was forwarded before, and compares it with this rank's calls.
  void SpreadNote(const EndRecord& record, int from_peer);
  // Does the work of Spread. Returns true if this is the first record of an error.
  bool SpreadLocked(const EndRecord& record, int from_peer);

  Segment* const segment_;
  const int local_rank_;
  const int64_t round_;
  const Duration silence_limit_;
  const std::vector<Peer> peers_;
  const std::function<void(const Status& why)> on_dead_;
  const std::function<Status(int rank, const CallNote& note)> on_note_;
  UniqueFd ended_fd_;
  UniqueFd stop_fd_;
  std::vector<Inbox> inboxes_;    // by peer; used only by thread_
  std::map<int, bool> has_left_;  // by rank; used only by thread_
  std::mutex mu_;                 // serializes SpreadLocked
  bool leaving_ = false;
  std::deque<CallNote> spread_notes_;    // the last ones, at most kMaxSpreadNotes
  bool asked_ = false;                   // kAsk was spread, and answered by this rank
  bool node_knows_dead_ = false;         // kDead was sent to peers of this node
  bool other_nodes_know_dead_ = false;   // kDead was sent to peers of other nodes
  size_t num_closed_ = 0;                // peers whose connection has ended
  Event all_closed_;                     // set when all connections have ended
  uint64_t fewest_chunks_ = UINT64_MAX;  // smallest num_chunks of the kLeft records
  std::thread thread_;
};

}  // namespace ddprun
