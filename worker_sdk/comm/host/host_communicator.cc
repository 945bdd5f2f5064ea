#include "worker_sdk/comm/host/host_communicator.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/event.h"
#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/bootstrap.h"
#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/engine.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/tcp_mesh.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Time limit for the peers to acknowledge that this rank leaves. Monitor threads acknowledge even while the
// callers' threads compute, so the limit is reached only if a peer is stopped or cut off.
constexpr Duration kLeaveTimeout = seconds(1);

class HostGroup;

// The helper thread looks for work this often while operations are started, and after kIdlePolls times without any
// sleeps until there is work. A start then costs no system call, and an operation that nobody waits for begins soon.
constexpr Duration kPoll = std::chrono::microseconds(200);
constexpr int kIdlePolls = 50;
// A caller that waits while another thread moves data checks this often whether that thread has stopped.
constexpr Duration kHandover = std::chrono::milliseconds(1);

// One operation, shared by the caller that waits for the operation and by the thread that moves data. Either of
// the two may release the operation first.
class Op : public internal::Operation {
 public:
  Op(HostGroup* group, const Call& call, const char* in, char* out, Duration timeout)
      : Operation(timeout), group_(group), call_(call), in_(in), out_(out) {}

  const Call& call() const { return call_; }
  Chunk ChunkAt(size_t offset, size_t max_bytes) const {
    return {call_, in_, out_, offset, std::min(max_bytes, call_.num_bytes - offset)};
  }

  // Must be called once.
  void Finish(Status status) {
    result_ = std::move(status);
    finished_.Set();
  }

  // True if this operation reads or writes memory that `earlier` writes. `world`: number of ranks.
  bool Needs(const Op& earlier, size_t world) const {
    const Bytes written = earlier.Out(world);
    return Overlap(written, In()) || Overlap(written, Out(world));
  }

  Status Wait(TimePoint deadline) override;
  bool Done() override { return finished(); }
  bool finished() const { return finished_.IsSet(); }
  bool WaitUntil(TimePoint deadline) { return finished_.WaitUntil(deadline); }

 private:
  struct Bytes {
    const char* begin;
    size_t size;
  };
  static bool Overlap(const Bytes& a, const Bytes& b) {
    return a.size > 0 && b.size > 0 && a.begin < b.begin + b.size && b.begin < a.begin + a.size;
  }
  Bytes In() const { return {in_, call_.num_bytes}; }
  Bytes Out(size_t world) const {
    switch (call_.kind) {
      case internal::OpKind::kAllGather:
        return {out_, call_.num_bytes * world};
      case internal::OpKind::kReduceScatter:
        return {out_, call_.num_bytes / world};
      default:
        return {out_, out_ == nullptr ? 0 : call_.num_bytes};
    }
  }

  HostGroup* const group_;  // valid until the operation has finished
  const Call call_;
  const char* const in_;
  char* const out_;
  Status result_;  // written before finished_ is set, read after
  Event finished_;
};

class HostGroup : public internal::Group {
 public:
  HostGroup(const HostCommunicatorOptions& options, Links links, std::optional<AllReduceAlgorithm> only)
      : rank_(options.rank),
        local_rank_(static_cast<int>(options.local_rank.value())),
        round_(options.round),
        timeout_(options.timeout),
        topology_(std::move(links.topology)),
        segment_(std::move(links.segment)),
        monitor_(&segment_, local_rank_, round_.value(), SilenceLimit(options.silence_limit),
                 std::move(links.watched)),
        mesh_(std::move(links.lane), local_rank_, SilenceLimit(options.silence_limit), &segment_, &monitor_,
              &patience_),
        engine_(topology_, static_cast<int>(options.group_rank.value()), local_rank_, &segment_, &monitor_,
                topology_.num_nodes() > 1 ? &mesh_ : nullptr, &patience_, only),
        helper_([this] { Help(); }) {}

  ~HostGroup() override {
    bool idle;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      idle = num_unfinished_ == 0;
    }
    if (!idle) Abort("its communicator was destroyed with operations pending");
    {
      const std::lock_guard<std::mutex> lock(mu_);
      stopping_ = true;
    }
    changed_.notify_one();
    helper_.join();
    monitor_.PassOnEnds();
    if (!segment_.DeadStatus().ok()) return;
    monitor_.Leave(static_cast<int>(rank_.value()), num_filled_, kLeaveTimeout);
  }

  int rank() const override { return static_cast<int>(rank_.value()); }
  int size() const override { return topology_.world_size(); }
  Status status() const override {
    const std::lock_guard<std::mutex> lock(mu_);
    return end_.ok() ? segment_.DeadStatus() : end_;
  }

  std::shared_ptr<internal::Operation> Start(const Call& call, const void* in, void* out) override {
    const std::lock_guard<std::mutex> lock(mu_);
    auto op = std::make_shared<Op>(this, Numbered(call), static_cast<const char*>(in),
                                   static_cast<char*>(out), timeout_);
    if (!end_.ok()) {
      op->Finish(end_);
      return op;
    }
    ++num_unfinished_;
    queue_.push_back(op);
    if (helper_sleeps_) changed_.notify_one();
    return op;
  }

  std::shared_ptr<internal::Operation> Refuse(const Call& call, const Status& why) override {
    const Status named = WithContext(why, StrCat("rank ", rank_.value(), " of round ", round_.value()));
    monitor_.SetDead(named);
    auto op = std::make_shared<Op>(this, call, nullptr, nullptr, timeout_);
    op->Finish(status());  // the first error, which may be an earlier one
    return op;
  }

  void Abort(std::string_view reason) override {
    monitor_.SetDead(
        AbortedError(StrCat("rank ", rank_.value(), " of round ", round_.value(), " gave up: ", reason)));
  }

  // Waits until `op` has finished. Meanwhile moves data, unless another thread does. Ends the communicator if
  // `deadline` passes.
  void Await(Op& op, TimePoint deadline) {
    while (!op.finished()) {
      const std::unique_lock<std::mutex> driving(driving_, std::try_to_lock);
      if (driving.owns_lock()) {
        patience_ = {.deadline = deadline, .passed = [&] { GiveUp(op.call()); }};
        Drive(&op);
        patience_ = {};
      } else if (!op.WaitUntil(std::min<TimePoint>(deadline, Clock::now() + kHandover))) {
        if (Clock::now() < deadline) continue;
        GiveUp(op.call());
        deadline = TimePoint::max();  // the thread that moves data finishes `op` after at most one more chunk
      }
    }
  }

  // Ends the communicator because a deadline passed while `call` was in flight.
  void GiveUp(const Call& call) {
    const Segment::HoldUp who = segment_.WhoHoldsUp();
    const int first_rank = static_cast<int>(rank_.value()) - local_rank_;
    std::vector<int> awaited;
    for (int local : who.local_ranks) awaited.push_back(first_rank + local);
    if (awaited.empty()) awaited = who.peers;
    monitor_.SetDead(DeadlineExceededError(
        StrCat("rank ", rank_.value(), " of round ", round_.value(), " gave up operation ", call.index,
               awaited.empty() ? "" : ", waiting for rank ", StrJoin(awaited, ", "))));
  }

 private:
  // A chunk that was filled and is not yet drained, and the operation that it belongs to.
  struct InFlight {
    std::shared_ptr<Op> op;
    Chunk chunk;
    bool is_last = false;
  };

  Call Numbered(Call call) {
    call.index = num_started_++;
    return call;
  }

  // Returns the next chunk in order; nullopt if there is none.
  std::optional<InFlight> NextChunk() {
    const std::lock_guard<std::mutex> lock(mu_);
    if (queue_.empty()) return std::nullopt;
    InFlight next{.op = queue_.front(), .chunk = {}};
    const size_t max_bytes = engine_.MaxChunkBytes(next.op->call().kind);
    next.chunk = next.op->ChunkAt(next_offset_, max_bytes);
    next_offset_ += next.chunk.num_bytes;
    next.is_last = next_offset_ == next.op->call().num_bytes;
    if (next.is_last) {
      queue_.pop_front();
      next_offset_ = 0;
    }
    return next;
  }

  void FinishOp(Op& op, const Status& status) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      --num_unfinished_;
    }
    op.Finish(status);
  }

  // Runs chunks until `until` has finished, if it is given, or no chunk is left, or one fails.
  //   Order: fill q + 1, combine q, drain q - 1, so that each step waits for work that peers did one step
  //          earlier. Before this thread blocks on a chunk, it drains all earlier chunks. An operation that
  //          all ranks have started therefore finishes even if a peer never starts the next operation.
  Status RunChunks(const Op* until) {
    while (until == nullptr || !until->finished()) {
      std::optional<InFlight> next = NextChunk();
      const bool filled = next.has_value();
      if (!filled && num_drained_ == num_filled_) return OkStatus();
      if (filled) {
        InFlight& slot = in_flight_[num_filled_ % in_flight_.size()];
        slot = *std::move(next);
        // Chunks that need not wait for other ranks do not check the deadline otherwise.
        if (slot.chunk.offset > 0) patience_.Check();
        if (slot.chunk.offset == 0 && NeedsEarlier(*slot.op)) {
          while (num_combined_ < num_filled_) DDPRUN_RETURN_IF_ERROR(CombineNext());
          DDPRUN_RETURN_IF_ERROR(DrainBefore(num_combined_));
        }
        DDPRUN_RETURN_IF_ERROR(engine_.Fill(num_filled_, slot.chunk));
        ++num_filled_;
      }
      // If a chunk was just filled, leave it uncombined, and leave the chunk before it undrained. Otherwise
      // combine and drain all chunks that were filled.
      if (num_combined_ + (filled ? 1 : 0) < num_filled_) {
        DDPRUN_RETURN_IF_ERROR(CombineNext());
      }
      if (num_drained_ + (filled ? 1 : 0) < num_combined_)
        DDPRUN_RETURN_IF_ERROR(DrainBefore(num_drained_ + 1));
    }
    return OkStatus();
  }

  // True if an operation in flight writes memory that `op` uses.
  bool NeedsEarlier(const Op& op) const {
    for (uint64_t q = num_drained_; q < num_filled_; ++q) {
      if (op.Needs(*in_flight_[q % in_flight_.size()].op, topology_.world_size())) return true;
    }
    return false;
  }

  Status CombineNext() {
    const auto catch_up = [this] { return DrainBefore(num_combined_); };
    Status combined =
        engine_.Combine(num_combined_, in_flight_[num_combined_ % in_flight_.size()].chunk, catch_up);
    if (!combined.ok()) {
      (void)catch_up();  // earlier chunks may be complete despite the error
      return combined;
    }
    ++num_combined_;
    return OkStatus();
  }

  // Drains all chunks before `end`; blocks until they are complete. Finishes every operation whose last chunk
  // is among these chunks.
  Status DrainBefore(uint64_t end) {
    while (num_drained_ < end) {
      InFlight& slot = in_flight_[num_drained_ % in_flight_.size()];
      DDPRUN_RETURN_IF_ERROR(engine_.Drain(num_drained_, slot.chunk));
      ++num_drained_;
      const std::shared_ptr<Op> op = std::move(slot.op);
      if (slot.is_last) FinishOp(*op, OkStatus());
    }
    return OkStatus();
  }

  // Moves data until `until` has finished, if it is given, or no operation is left.
  //   REQUIRES: the caller holds driving_.
  void Drive(const Op* until) {
    if (ended_) return;
    const DefaultFloatingPointMode mode;
    const Status end = RunChunks(until);
    if (end.ok()) return;
    ended_ = true;
    monitor_.PassOnEnds();  // before the caller sees the error and may exit
    // end_ is stored separately from the segment's status: after a peer has left, each rank fails at the first
    // chunk in which the peer does not take part, and the segment does not become dead.
    std::deque<std::shared_ptr<Op>> failed;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      end_ = end;  // operations that are started later fail at once
      failed.swap(queue_);
    }
    for (InFlight& slot : in_flight_) {
      if (slot.op != nullptr && slot.is_last) FinishOp(*slot.op, end);
      slot.op.reset();
    }
    for (const std::shared_ptr<Op>& op : failed) FinishOp(*op, end);
  }

  // The helper thread: moves data while no caller waits. Returns when the destructor runs and all operations have
  // finished.
  void Help() {
    std::unique_lock<std::mutex> lock(mu_);
    uint64_t num_seen = 0;
    int idle_polls = 0;
    while (!stopping_ || num_unfinished_ > 0) {
      idle_polls = num_started_ == num_seen ? idle_polls + 1 : 0;
      num_seen = num_started_;
      if (num_unfinished_ == 0 && idle_polls > kIdlePolls) {
        helper_sleeps_ = true;
        changed_.wait(lock, [this] { return stopping_ || num_unfinished_ > 0; });
        helper_sleeps_ = false;
        continue;
      }
      const bool has_work = num_unfinished_ > 0;
      lock.unlock();
      {
        const std::unique_lock<std::mutex> driving(driving_, std::try_to_lock);
        if (has_work && driving.owns_lock()) Drive(nullptr);
      }
      std::this_thread::sleep_for(kPoll);
      lock.lock();
    }
  }

  const Rank rank_;
  const int local_rank_;
  const Round round_;
  const Duration timeout_;
  const Topology topology_;
  Segment segment_;
  Monitor monitor_;
  Patience patience_;  // of the thread that holds driving_
  TcpMesh mesh_;
  Engine engine_;

  // mu_ guards the members up to next_offset_. changed_ wakes the helper.
  mutable std::mutex mu_;
  std::condition_variable changed_;
  Status end_;  // the error that ended this communicator on this rank
  bool stopping_ = false;
  bool helper_sleeps_ = false;
  uint64_t num_started_ = 0;
  uint64_t num_unfinished_ = 0;
  std::deque<std::shared_ptr<Op>> queue_;
  size_t next_offset_ = 0;  // of the next chunk, in queue_.front()

  // Held by the thread that moves data: a caller in Work::Wait, or the helper. Guards patience_, the engine and the
  // members up to in_flight_; the destructor also uses num_filled_ once the helper has exited. Locked before mu_.
  std::mutex driving_;
  bool ended_ = false;  // a chunk has failed
  uint64_t num_filled_ = 0;
  uint64_t num_combined_ = 0;
  uint64_t num_drained_ = 0;
  std::array<InFlight, 4> in_flight_;  // chunk q is at index q % 4
  std::thread helper_;                 // declared last: the thread uses all other members
};

Status Op::Wait(TimePoint deadline) {
  if (!finished()) group_->Await(*this, deadline);
  return result_;
}

StatusOr<Communicator> Create(const HostCommunicatorOptions& options, Store* store,
                              std::optional<AllReduceAlgorithm> only) {
  const TimePoint deadline = DeadlineAfter(options.setup_timeout);
  DDPRUN_ASSIGN_OR_RETURN(Links links, Bootstrap(options, store));
  Communicator comm(std::make_shared<HostGroup>(options, std::move(links), only));
  // The monitor now detects deaths. The barrier blocks every rank until all ranks are connected.
  DDPRUN_RETURN_IF_ERROR(comm.Barrier().Wait(deadline), "meeting the other ranks");
  return comm;
}

}  // namespace

StatusOr<Communicator> CreateHostCommunicator(const HostCommunicatorOptions& options, Store* store) {
  return Create(options, store, std::nullopt);
}

StatusOr<Communicator> CreateHostCommunicatorForTest(const HostCommunicatorOptions& options, Store* store,
                                                     AllReduceAlgorithm only) {
  return Create(options, store, only);
}

}  // namespace ddprun
