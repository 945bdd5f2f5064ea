// Send and Receive: messages between pairs of ranks, beside the collectives of the group.
//
// Each ordered pair of ranks has a queue of its own on both ranks; the messages of a queue are numbered 0, 1, 2, ...
// Step() moves a part of the first message of every queue without blocking, so no queue waits for another one. The
// thread in Work::Wait steps; while no caller waits, a helper thread does.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/channel.h"
#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/staged_message.h"
#include "worker_sdk/comm/host/tcp_channel.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

//   Threads: one caller of Start and of the operations at a time; the other functions: any.
class PointToPoint {
 public:
  // This rank in its group.
  struct Self {
    int rank = 0;
    int local_rank = 0;
    int node = 0;
    int64_t round = 0;
    uint64_t run_id_hash = 0;
    Duration silence_limit = {};
    Duration timeout = {};  // for Wait without a deadline
    int ended_fd = -1;      // readable once communication has ended with an error
  };
  // Where a rank accepts the connections of lower ranks. Exchanged in its in-memory layout.
  struct Address {
    std::array<char, 112> text = {};  // Listener::address(), NUL-terminated
    Token token = {};
  };
  static_assert(sizeof(Address) == 128);
  // What accepts these connections.
  struct Door {
    Listener listener;
    Token token;
  };

  // `topology`, `segment` and `monitor` must outlive this object. `door`: set if there are several nodes. `ended` is
  // called once if messages have ended on this rank although the segment is not dead: a peer of a pending message has
  // left.
  PointToPoint(const Topology& topology, const Self& self, Segment* segment, Monitor* monitor,
               std::optional<Door> door, std::function<void(const Status&)> ended);
  // REQUIRES: Stop was called.
  ~PointToPoint();

  // REQUIRES: there are several nodes.
  [[nodiscard]] Address OwnAddress() const;
  // `addresses`: of all ranks. Must be called before the first Start if there are several nodes.
  void SetAddresses(std::vector<Address> addresses);

  // Starts a kSend or kReceive of `data`; call.root is the peer. A send only reads `data`.
  std::shared_ptr<internal::Operation> Start(const Call& call, char* data);
  // Likewise, of a payload that is not in memory of the host.
  std::shared_ptr<StagedMessage> StartStaged(const Call& call);
  // True if no message is pending.
  bool IsIdle() const;
  // Fails all pending and later messages with `why`, unless messages have ended already.
  void End(const Status& why);
  // Stops the helper thread, and informs the ranks that watch this one that it leaves, unless the segment is dead. Messages
  // that are pending fail with the error of the segment.
  //   REQUIRES: IsIdle(), or the segment is dead.
  void Stop();
  // Fails all messages, stops the helper thread, and closes the connections, the rings and the door. Does not use the segment
  // and the monitor from then on. Blocks until a caller on another thread no longer moves data.
  //   REQUIRES: the segment is dead.
  void Retire();

 private:
  class Message;
  // One direction of a pair, on this rank.
  struct Queue {
    std::deque<std::shared_ptr<Message>> pending;
    uint64_t num_started = 0;
    bool is_starved() const;  // the first message waits for SetReady
  };
  struct Peer {
    int rank = 0;
    int node = 0;
    bool is_local = true;
    std::unique_ptr<Channel> channel;
    TcpChannel* tcp = nullptr;  // `channel`, if the peer is on another node
    Queue sends, receives;
    bool is_active = false;                      // in active_
    bool is_watched = false;                     // Watch has connected
    std::unique_ptr<TcpConnecting> watch;        // null: not watched, or the watch has ended
    bool has_left = false, is_gone = false;      // found by the watch
    std::optional<TimePoint> broken_since = {};  // when the channel's error was seen
    bool is_idle() const { return sends.pending.empty() && receives.pending.empty(); }
  };

  // A connection of a rank that watches this one.
  struct Watcher {
    UniqueFd fd;
    Greeting greeting;
  };

  std::shared_ptr<Message> StartMessage(const Call& call, char* data, bool is_staged);
  // What StagedMessage does.
  void SetReady(Message& message, std::span<char> window, size_t num_ready);
  void EndFor(const Message& message);

  // The number of a rank of the group in messages.
  [[nodiscard]] int NameOf(int rank) const { return topology_.WorldRank(rank); }
  // "message 3 from rank 0 to rank 1".
  std::string Name(const Message& message) const;

  // All of these require mu_.
  Peer& PeerOf(int rank);
  // Moves a part of each queue's first message. Returns true if anything has happened.
  bool Step();
  bool StepQueue(Peer& peer, Queue& queue, bool send);
  // Accepts the connections of lower ranks. Returns true if there were any.
  bool AcceptPairs();
  // Returns true if `greeting` comes from a rank of another node of this group.
  bool IsFromGroup(const Greeting& greeting) const;
  // Connects to a peer of another node if its exit would not be reported to this rank, because the first rank of one of
  // the two nodes has left. The peer's kernel accepts the connection and closes it when the peer exits; a peer that
  // leaves as planned answers the greeting first.
  void Watch(Peer& peer);
  // Informs the ranks that watch this one that it leaves.
  void AnswerWatchers();
  [[nodiscard]] Greeting GreetingTo(LinkKind kind, int rank, const Token& token) const;
  // True while a message needs a connection that a lower rank makes.
  bool NeedsConnection() const;
  void ShowDifference(const Peer& peer, const Message& message);
  void HandleError(Peer& peer);
  void FailAll(const Status& why);

  // What Message::Wait does.
  void Await(Message& message, TimePoint deadline);
  // Lets the threads in SetReady have the lock.
  void YieldTo(std::unique_lock<std::mutex>& lock);
  // Sleeps until something may have happened, at most until `deadline`. Releases the lock meanwhile.
  void Sleep(std::unique_lock<std::mutex>& lock, const Message& message, TimePoint deadline);
  void GiveUp(const Message& message);
  void Help();

  const Topology& topology_;
  const Self self_;
  Segment* const segment_;
  Monitor* const monitor_;
  const std::function<void(const Status&)> ended_;

  std::atomic<int> num_in_set_ready_{0};  // threads
  mutable std::mutex mu_;                 // guards all members below
  std::condition_variable changed_;       // wakes the helper
  std::condition_variable left_;          // caller_waits_ is false
  std::optional<Door> door_;
  std::vector<Address> addresses_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: no message yet
  std::vector<Watcher> watchers_;
  std::vector<Peer*> active_;  // at least the peers with pending messages
  size_t num_pending_ = 0;
  Status end_;  // not OK: messages have ended
  bool caller_waits_ = false;
  std::optional<bool> spins_;
  bool stopping_ = false;
  bool helper_sleeps_ = false;
  std::thread helper_;  // started with the first message
};

}  // namespace ddprun
