// The collective operations of a group: their queue, and the threads that move their data.
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
#include <thread>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/engine.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/host/patience.h"
#include "worker_sdk/comm/host/region.h"
#include "worker_sdk/comm/host/regions.h"
#include "worker_sdk/comm/host/retire_gate.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {

// Operations run in the order in which they were started. A thread in Work::Wait moves the data until its operation has
// finished, that of earlier operations included. While no caller waits, a helper thread does.
//   Threads: one caller of Start, the operations and AddRegion at a time; the other functions: any.
class Collectives {
 public:
  // `topology`, `segment`, `monitor` and `gate` must outlive this object; until Retire, `segment` and `monitor` also may be used
  // while `gate` is closed, except that GiveUp does not use them then. `lane`: Links::lane. `only`: see Engine. `ended` is called
  // once, when an operation has failed, with its error.
  Collectives(const Topology& topology, const HostCommunicatorOptions& options, Segment* segment,
              Monitor* monitor, RetireGate* gate, std::vector<TcpMesh::Peer> lane,
              std::optional<AllReduceAlgorithm> only, std::function<void(const Status&)> ended);
  // REQUIRES: Stop was called.
  ~Collectives();

  std::shared_ptr<internal::Operation> Start(const Call& call, const void* in, void* out);
  // Returns an operation that has failed with `why`.
  std::shared_ptr<internal::Operation> Failed(const Call& call, const Status& why) const;

  // True if all operations have finished.
  bool IsIdle() const;
  // The error with which operations that are started from now on fail; OK if there is none.
  Status end() const;
  // Operations that are started later fail with `why`, unless there is an earlier error.
  void End(const Status& why);
  // Stops the helper thread when all operations have finished.
  void Stop();
  // Fails all operations, stops the helper thread, closes the connections and retires the regions. Does not use the segment and
  // the monitor from then on. Blocks until a caller on another thread no longer moves data.
  //   REQUIRES: the segment is dead.
  void Retire();
  // Number of chunks in which this rank has taken part.
  //   REQUIRES: Stop was called.
  uint64_t num_filled() const { return engine_.num_filled(); }

  // Operations that are started later read from and write to `region` without copies.
  //   REQUIRES: no other region has this id; all ranks of the node add the region before they start an operation that uses
  //             it.
  void AddRegion(std::shared_ptr<Region> region);

 private:
  class Op;
  // The operation of a chunk in the engine.
  struct InFlight {
    std::shared_ptr<Op> op;
    bool is_last = false;  // chunk of the operation
  };

  // What Op::Wait does: moves data, unless another thread does. Ends communication if `deadline` passes.
  void Await(Op& op, TimePoint deadline);
  // Ends communication because a deadline passed while `call` was in flight.
  void GiveUp(const Call& call);

  // The functions below require driving_.
  // Moves data until `until` has finished, if it is given, or no operation is left.
  void Drive(const Op* until);
  // Runs chunks until `until` has finished, if it is given, or no chunk is left, or one fails.
  Status RunChunks(const Op* until);
  // Fails all operations, now and from now on, with `end`.
  void Fail(const Status& end);
  // True if the engine has room for a chunk.
  bool HasRoom() const;
  // Gives the engine a chunk.
  //   REQUIRES: HasRoom().
  void Take(InFlight in_flight, const Chunk& chunk);
  // Gives the engine the next chunk of the queue. Returns false if there is none, if the engine has no room, or if the chunk must wait
  // for an operation in flight.
  bool TakeNext();
  // True if `op` uses memory that an operation in flight writes, or writes memory that one reads.
  bool NeedsEarlier(const Op& op) const;
  // Finishes every operation whose last chunk is drained.
  void FinishDrained();
  void FinishOp(Op& op, const Status& status);

  // The helper thread. Returns after Stop, when all operations have finished.
  void Help();

  const Topology& topology_;
  const int rank_;
  const int local_rank_;
  const int node_;
  const int64_t round_;
  const Duration timeout_;
  Segment* const segment_;
  Monitor* const monitor_;
  RetireGate* const gate_;
  const std::function<void(const Status&)> ended_callback_;

  // mu_ guards the members up to next_offset_; TakeNext reads has_queued_ without it. changed_ wakes the helper.
  mutable std::mutex mu_;
  std::condition_variable changed_;
  Status end_;
  bool stopping_ = false;
  bool helper_sleeps_ = false;
  uint64_t num_started_ = 0;
  std::atomic<uint64_t> num_unfinished_{0};  // decreases without mu_
  std::deque<std::shared_ptr<Op>> queue_;
  std::atomic<bool> has_queued_{false};  // queue_ is not empty
  size_t next_offset_ = 0;               // of the next chunk, in queue_.front()

  // Held by the thread that moves data: a caller in Work::Wait, or the helper. Guards the members up to in_flight_. Locked
  // before mu_.
  std::mutex driving_;
  Patience patience_;
  TcpMesh mesh_;
  Regions regions_;
  Engine engine_;
  bool ended_ = false;                                  // a chunk has failed
  uint64_t num_finished_ = 0;                           // chunks whose end was noted in their operation
  std::array<InFlight, Engine::kMaxChunks> in_flight_;  // chunk q is at index q % kMaxChunks
  std::thread helper_;                                  // declared last: the thread uses all other members
};

}  // namespace ddprun
