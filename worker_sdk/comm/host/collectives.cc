#include "worker_sdk/comm/host/collectives.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/event.h"
#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/comm/floating_point_mode.h"
#include "worker_sdk/comm/host/chunk.h"
#include "worker_sdk/comm/host/hold_up.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// The helper thread looks for work this often while operations are started, and after kIdlePolls times without any
// sleeps until there is work. A start then costs no system call, and an operation for which no caller waits begins soon.
constexpr Duration kPoll = std::chrono::microseconds(200);
constexpr int kIdlePolls = 50;
// A caller that waits while another thread moves data checks this often whether that thread has stopped.
constexpr Duration kHandover = std::chrono::milliseconds(1);

// The caller itself copies the input of an operation up to this size when it starts the operation.
constexpr size_t kEagerBytes = 4096;

// An operation reads the clock when it finishes if a rank's input has at least this size.
constexpr size_t kTimedBytes = 4096;

}  // namespace

// One operation, shared by the caller that waits for the operation and by the thread that moves data. Either of
// the two may release the operation first.
class Collectives::Op : public internal::Operation {
 public:
  Op(Collectives* group, const Call& call, const char* in, char* out, Duration timeout)
      : Operation(timeout), group_(group), call_(call), in_(in), out_(out) {}

  const Call& call() const { return call_; }
  Chunk ChunkAt(size_t offset, size_t max_bytes) const {
    return {call_, in_, out_, offset, std::min(max_bytes, call_.num_bytes - offset)};
  }

  // Must be called once.
  void Finish(Status status) {
    result_ = std::move(status);
    if (call_.num_bytes >= kTimedBytes) ended_ = Clock::now();
    finished_.Set();
  }

  // True if this operation reads or writes memory that `earlier` writes, or writes memory that it reads. `world`: number
  // of ranks.
  bool Needs(const Op& earlier, size_t world) const {
    const Bytes written = earlier.Out(world);
    return Overlap(written, In()) || Overlap(written, Out(world)) || Overlap(earlier.In(), Out(world));
  }

  Status Wait(TimePoint deadline) override {
    if (!finished()) {
      const internal::AwaitedOperation shown(call_);
      group_->Await(*this, deadline);
    }
    return result_;
  }
  bool Done() override { return finished(); }
  std::optional<TimePoint> ended() const override { return finished() ? ended_ : std::nullopt; }
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

  Collectives* const group_;  // valid until the operation has finished
  const Call call_;
  const char* const in_;
  char* const out_;
  // Written before finished_ is set, read after.
  Status result_;
  std::optional<TimePoint> ended_;
  Event finished_;
};

Collectives::Collectives(const Topology& topology, const HostCommunicatorOptions& options, Segment* segment,
                         Monitor* monitor, RetireGate* gate, std::vector<TcpMesh::Peer> lane,
                         std::optional<AllReduceAlgorithm> only, std::function<void(const Status&)> ended)
    : topology_(topology),
      rank_(static_cast<int>(options.rank.value())),
      local_rank_(static_cast<int>(options.local_rank.value())),
      node_(static_cast<int>(options.group_rank.value())),
      round_(options.round.value()),
      timeout_(options.timeout),
      segment_(segment),
      monitor_(monitor),
      gate_(gate),
      ended_callback_(std::move(ended)),
      mesh_(std::move(lane), local_rank_, SilenceLimit(options.silence_limit), segment, monitor, &patience_),
      regions_(local_rank_),
      engine_(topology_, node_, local_rank_, segment, monitor, topology_.num_nodes() > 1 ? &mesh_ : nullptr,
              &patience_, &regions_, only),
      helper_([this] { Help(); }) {}

Collectives::~Collectives() = default;

std::shared_ptr<internal::Operation> Collectives::Start(const Call& call, const void* in, void* out) {
  Call numbered = call;
  numbered.index = num_started_;
  auto op =
      std::make_shared<Op>(this, numbered, static_cast<const char*>(in), static_cast<char*>(out), timeout_);
  // The input of a small operation is on its way while the caller prepares to wait.
  std::unique_lock<std::mutex> driving(driving_, std::defer_lock);
  bool at_once = call.num_bytes <= std::min(kEagerBytes, engine_.MaxChunkBytes(call.kind)) &&
                 driving.try_lock() && !ended_ && HasRoom() && !NeedsEarlier(*op);
  {
    const std::lock_guard<std::mutex> lock(mu_);
    ++num_started_;
    if (!end_.ok()) {
      op->Finish(end_);
      return op;
    }
    ++num_unfinished_;
    at_once = at_once && queue_.empty();
    if (!at_once) {
      queue_.push_back(op);
      has_queued_.store(true, std::memory_order_release);
    }
    if (helper_sleeps_) changed_.notify_one();
  }
  if (at_once) Take({.op = op, .is_last = true}, op->ChunkAt(0, call.num_bytes));
  return op;
}

std::shared_ptr<internal::Operation> Collectives::Failed(const Call& call, const Status& why) const {
  auto op = std::make_shared<Op>(nullptr, call, nullptr, nullptr, timeout_);
  op->Finish(why);
  return op;
}

bool Collectives::IsIdle() const { return num_unfinished_.load() == 0; }

Status Collectives::end() const {
  const std::lock_guard<std::mutex> lock(mu_);
  return end_;
}

void Collectives::End(const Status& why) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (end_.ok()) end_ = why;
}

void Collectives::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  helper_.join();
}

void Collectives::Retire() {
  {
    const std::lock_guard<std::mutex> driving(driving_);
    if (!ended_) Fail(segment_->DeadStatus());
    mesh_.Close();
    regions_.Retire();
  }
  Stop();
}

void Collectives::AddRegion(std::shared_ptr<Region> region) {
  const std::lock_guard<std::mutex> driving(driving_);
  regions_.Clean();
  regions_.Add(std::move(region));
}

void Collectives::Await(Op& op, TimePoint deadline) {
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

void Collectives::GiveUp(const Call& call) {
  const RetireGate::Use use(*gate_);
  if (!use) return;  // communication has ended
  const std::vector<int> awaited = RanksThatHoldUp(topology_, node_, local_rank_, *segment_, monitor_);
  monitor_->SetDead(DeadlineExceededError(
      StrCat("rank ", topology_.WorldRank(rank_), " of round ", round_, " gave up operation ", call.index,
             awaited.empty() ? "" : ", waiting for rank ", StrJoin(awaited, ", "))));
}

bool Collectives::HasRoom() const { return engine_.num_taken() - engine_.num_drained() < Engine::kMaxChunks; }

void Collectives::Take(InFlight in_flight, const Chunk& chunk) {
  in_flight_[engine_.num_taken() % in_flight_.size()] = std::move(in_flight);
  engine_.Take(chunk);
}

bool Collectives::TakeNext() {
  if (!has_queued_.load(std::memory_order_acquire) || !HasRoom()) return false;
  InFlight next;
  Chunk chunk;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (queue_.empty()) return false;
    const std::shared_ptr<Op>& op = queue_.front();
    if (next_offset_ == 0 && NeedsEarlier(*op)) return false;
    chunk = op->ChunkAt(next_offset_, engine_.MaxChunkBytes(op->call().kind));
    next_offset_ += chunk.num_bytes;
    next = {.op = op, .is_last = next_offset_ == op->call().num_bytes};
    if (next.is_last) {
      queue_.pop_front();
      has_queued_.store(!queue_.empty(), std::memory_order_release);
      next_offset_ = 0;
    }
  }
  if (chunk.offset > 0) patience_.Check();  // chunks that need not wait do not check the deadline otherwise
  Take(std::move(next), chunk);
  return true;
}

void Collectives::FinishOp(Op& op, const Status& status) {
  num_unfinished_.fetch_sub(1);
  op.Finish(status);
}

Status Collectives::RunChunks(const Op* until) {
  while (until == nullptr || !until->finished()) {
    const bool took = TakeNext();
    const bool stepped = engine_.Step();
    FinishDrained();
    if (took || stepped) continue;
    if (engine_.num_drained() == engine_.num_taken()) return OkStatus();
    DDPRUN_RETURN_IF_ERROR(engine_.Await());
  }
  return OkStatus();
}

bool Collectives::NeedsEarlier(const Op& op) const {
  for (uint64_t q = engine_.num_drained(); q < engine_.num_taken(); ++q) {
    if (op.Needs(*in_flight_[q % in_flight_.size()].op, topology_.world_size())) return true;
  }
  return false;
}

void Collectives::FinishDrained() {
  for (; num_finished_ < engine_.num_drained(); ++num_finished_) {
    InFlight& slot = in_flight_[num_finished_ % in_flight_.size()];
    const std::shared_ptr<Op> op = std::move(slot.op);
    if (slot.is_last) FinishOp(*op, OkStatus());
  }
}

void Collectives::Drive(const Op* until) {
  if (ended_) return;
  const DefaultFloatingPointMode mode;
  const Status end = RunChunks(until);
  if (!end.ok()) Fail(end);
}

void Collectives::Fail(const Status& end) {
  ended_ = true;
  monitor_->PassOnEnds();  // before the caller sees the error and may exit
  // end_ is stored separately from the segment's status: after a peer has left, each rank fails at the first
  // chunk in which the peer does not take part, and the segment does not become dead.
  std::deque<std::shared_ptr<Op>> failed;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (end_.ok()) end_ = end;
    failed.swap(queue_);
    has_queued_.store(false, std::memory_order_release);
  }
  for (InFlight& slot : in_flight_) {
    if (slot.op != nullptr && slot.is_last) FinishOp(*slot.op, end);
    slot.op.reset();
  }
  for (const std::shared_ptr<Op>& op : failed) FinishOp(*op, end);
  ended_callback_(end);
}

void Collectives::Help() {
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

}  // namespace ddprun
