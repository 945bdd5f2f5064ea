#include "worker_sdk/comm/host/host_communicator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/bootstrap.h"
#include "worker_sdk/comm/host/call_history.h"
#include "worker_sdk/comm/host/collectives.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/group_store.h"
#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/comm/host/hold_up.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/memory_room.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/point_to_point.h"
#include "worker_sdk/comm/host/region.h"
#include "worker_sdk/comm/host/retire_gate.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/split.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Time limit for the peers to acknowledge that this rank leaves. Monitor threads acknowledge even while the
// callers' threads compute, so the limit is reached only if a peer is stopped or cut off.
constexpr Duration kLeaveTimeout = seconds(1);

// If a split fails and no death is reported within this time, this rank reports the failure as the cause.
constexpr Duration kExplanationTimeout = milliseconds(300);

class HostGroup final : public HostGroupInterface,
                        public Fabric::Member,
                        public std::enable_shared_from_this<HostGroup> {
 public:
  // `parent`: the group that this one was split from; null for the world.
  HostGroup(const HostCommunicatorOptions& options, Links links, std::optional<AllReduceAlgorithm> only,
            std::shared_ptr<Fabric> fabric, std::shared_ptr<HostGroup> parent)
      : options_(options),
        parent_(std::move(parent)),
        fabric_(std::move(fabric)),
        membership_(*fabric_),
        rank_(static_cast<int>(options.rank.value())),
        local_rank_(static_cast<int>(options.local_rank.value())),
        round_(options.round.value()),
        topology_(std::move(links.topology)),
        calls_(round_, world_rank(), "GPU operation"),
        segment_(std::move(links.segment)),
        monitor_(
            std::in_place, &segment_, local_rank_, round_, SilenceLimit(options.silence_limit),
            std::move(links.watched), [fabric = fabric_](const Status& why) { fabric->End(why); },
            [this](int rank, const CallNote& note) { return calls_.Receive(rank, note); }),
        collectives_(topology_, options, &segment_, &*monitor_, &gate_, std::move(links.lane), only,
                     [this](const Status& why) { messages_.End(why); }),
        messages_(topology_,
                  {.rank = rank_,
                   .local_rank = local_rank_,
                   .node = static_cast<int>(options.group_rank.value()),
                   .round = round_,
                   .run_id_hash = HashRunId(options.run_id),
                   .silence_limit = options.silence_limit,
                   .timeout = options.timeout,
                   .ended_fd = fabric_->ended_fd()},
                  &segment_, &*monitor_, std::move(links.door),
                  [this](const Status& why) { collectives_.End(why); }),
        next_region_(segment_.unused().begin) {
    membership_.Join(this);
  }

  ~HostGroup() override {
    membership_.BeginLeaving();
    if (gate_.closed()) return;  // retired
    if (!collectives_.IsIdle() || !messages_.IsIdle()) {
      Abort("its communicator was destroyed with operations pending");
    }
    collectives_.Stop();
    messages_.Stop();
    monitor_->PassOnEnds();
    if (segment_.DeadStatus().ok()) {
      monitor_->Leave(world_rank(), collectives_.num_filled(), kLeaveTimeout);
    }
    gate_.Close();  // End does nothing from here on
  }

  void Retire() override {
    // From here on, status() does not need the segment, and all waits end.
    collectives_.End(segment_.DeadStatus());
    gate_.Close();
    collectives_.Retire();
    messages_.Retire();
    monitor_->PassOnEnds();
    monitor_.reset();
    segment_.Unmap();
  }

  int rank() const override { return rank_; }
  int size() const override { return topology_.world_size(); }
  Status status() const override {
    if (const Status end = collectives_.end(); !end.ok()) return end;
    const RetireGate::Use use(gate_);
    return use ? segment_.DeadStatus() : collectives_.end();
  }

  std::shared_ptr<internal::Operation> Start(const Call& call, const void* in, void* out) override {
    if (call.kind == OpKind::kSend) {
      return messages_.Start(call, const_cast<char*>(static_cast<const char*>(in)));
    }
    if (call.kind == OpKind::kReceive) return messages_.Start(call, static_cast<char*>(out));
    return collectives_.Start(call, in, out);
  }

  std::shared_ptr<StagedMessage> StartStaged(const Call& call) override {
    return messages_.StartStaged(call);
  }

  std::shared_ptr<internal::Operation> Refuse(const Call& call, const Status& why) override {
    End(WithContext(why, Name()));
    return collectives_.Failed(call, status());  // the first error, which may be an earlier one
  }

  void Abort(std::string_view reason) override { End(AbortedError(StrCat(Name(), " gave up: ", reason))); }

  void End(const Status& why) override {
    if (const RetireGate::Use use(gate_); use) monitor_->SetDead(why);
  }
  std::string Name() const override { return StrCat("rank ", world_rank(), " of round ", round_); }
  Status LeftStatus() const override {
    const RetireGate::Use use(gate_);
    if (!use) return OkStatus();
    for (int r = 0; r < size(); ++r) {
      if (segment_.HasLeft(topology_.WorldRank(r))) return segment_.LeftStatus(topology_.WorldRank(r));
    }
    return OkStatus();
  }
  std::vector<int> RanksThatDoNotAnswer() override {
    const RetireGate::Use use(gate_);
    if (!use) return {};
    return ddprun::RanksThatDoNotAnswer(topology_, static_cast<int>(options_.group_rank.value()), local_rank_,
                                        segment_, &*monitor_);
  }
  void NoteCall(const Call& call) override {
    if (const Status compared = calls_.Add(call); !compared.ok()) End(compared);
  }
  void PostCall(uint64_t index, uint32_t attempt) override {
    const RetireGate::Use use(gate_);
    std::optional<CallNote> note = use ? calls_.NoteOf(index) : std::nullopt;
    if (!note) return;
    note->attempt = attempt;
    monitor_->PostNote(world_rank(), *note);
  }
  const HostCommunicatorOptions& options() const override { return options_; }
  Fabric* fabric() override { return fabric_.get(); }

  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override;
  StatusOr<std::shared_ptr<internal::Group>> Split(int color, int key) override;

  // Exchanges the addresses of all ranks, and returns when all ranks have called this.
  Status Meet(TimePoint deadline) {
    const RetireGate::Use use(gate_);
    if (!use) return status();
    if (topology_.num_nodes() == 1) {
      return Start({.kind = OpKind::kBarrier}, nullptr, nullptr)->Wait(deadline);
    }
    const PointToPoint::Address own = messages_.OwnAddress();
    std::vector<PointToPoint::Address> all(size());
    const Call call{.kind = OpKind::kAllGather, .dtype = DType::kUInt8, .num_bytes = sizeof(own)};
    DDPRUN_RETURN_IF_ERROR(Start(call, &own, all.data())->Wait(deadline));
    messages_.SetAddresses(std::move(all));
    return OkStatus();
  }

 private:
  int world_rank() const { return topology_.WorldRank(rank_); }

  // Sets part r of `out` to `in` of rank r; all ranks do so for the same purpose.
  Status Gather(internal::Purpose purpose, std::span<const char> in, std::span<char> out) {
    const Call call{
        .kind = OpKind::kAllGather, .dtype = DType::kUInt8, .purpose = purpose, .num_bytes = in.size()};
    return Start(call, in.data(), out.data())->Wait(DeadlineAfter(options_.timeout));
  }

  StatusOr<std::shared_ptr<HostGroup>> SplitOff(const SplitChoice& mine);

  // Like the other Gather, of one value of each rank.
  template <typename T>
  StatusOr<std::vector<T>> Gather(internal::Purpose purpose, const T& mine) {
    std::vector<T> all(size());
    DDPRUN_RETURN_IF_ERROR(Gather(purpose, std::span(reinterpret_cast<const char*>(&mine), sizeof(mine)),
                                  {reinterpret_cast<char*>(all.data()), all.size() * sizeof(mine)}));
    return all;
  }

  // What a rank knows before memory is allocated.
  struct AllocationPlan {
    DType dtype = {};
    int64_t count = 0;
    uint64_t offset = 0;     // of the region in the memfd; that of the node's first rank counts
    uint64_t num_bytes = 0;  // that the rank's node needs
    uint64_t room = 0;       // bytes that the rank may use
    // The region fits the memfd, whose size may be limited (ulimit -f); that of the node's first rank counts.
    bool fits_file = false;
  };
  struct Allocation {
    std::shared_ptr<void> memory;    // for the Buffer
    std::shared_ptr<Region> region;  // null: only this rank can access the memory
  };
  StatusOr<Allocation> AllocateRegion(uint64_t offset, size_t part_bytes);
  static StatusOr<Allocation> AllocatePrivate(size_t num_bytes);
  // OK if all ranks have the same arguments and their nodes have the memory. The same status on all ranks.
  Status CheckPlans(const std::vector<AllocationPlan>& plans, const MemoryRoom& room) const;

  const HostCommunicatorOptions options_;
  const std::shared_ptr<HostGroup> parent_;  // left only after this group
  const std::shared_ptr<Fabric> fabric_;
  // Held by those who use segment_ and monitor_, apart from collectives_ and messages_, and by Split and Allocate all the time.
  mutable RetireGate gate_;
  Fabric::Membership membership_;  // left only after the members below have been destroyed
  const int rank_;                 // in this group
  const int local_rank_;
  const int64_t round_;
  const Topology topology_;
  CallComparison calls_;  // of NoteCall
  Segment segment_;
  std::optional<Monitor> monitor_;  // nullopt after Retire
  Collectives collectives_;
  PointToPoint messages_;
  // Allocate only.
  uint64_t next_region_;  // the first byte of the memfd that no region uses
  uint32_t num_regions_ = 0;
};

// Creates the group that `options` describe, and returns when all its ranks are connected.
StatusOr<std::shared_ptr<HostGroup>> MakeGroup(const HostCommunicatorOptions& options, Store* store,
                                               std::optional<AllReduceAlgorithm> only,
                                               const std::shared_ptr<Fabric>& fabric,
                                               std::shared_ptr<HostGroup> parent) {
  const TimePoint deadline = DeadlineAfter(options.setup_timeout);
  StatusOr<Links> links = Bootstrap(options, store, fabric->ended_fd());
  if (!links.ok()) {
    const Status end = fabric->status();  // why the bootstrap was cancelled, if it was
    return end.ok() ? links.status() : end;
  }
  auto group = std::make_shared<HostGroup>(options, *std::move(links), only, fabric, std::move(parent));
  // The monitor now detects deaths. Meet blocks every rank until all ranks are connected.
  DDPRUN_RETURN_IF_ERROR(group->Meet(deadline), "meeting the other ranks");
  return group;
}

StatusOr<std::shared_ptr<internal::Group>> HostGroup::Split(int color, int key) {
  const RetireGate::Use use(gate_);
  if (!use) return WithContext(status(), "split");
  StatusOr<std::shared_ptr<HostGroup>> group = SplitOff({.color = color, .key = key});
  if (group.ok()) return std::shared_ptr<internal::Group>(*std::move(group));
  // The other ranks wait for this one, either here or in the new group.
  if (status().ok()) fabric_->AwaitEnd(kExplanationTimeout);
  // A connection that another rank closes may be a consequence of a rank that is stopped.
  const std::vector<int> silent = RanksThatDoNotAnswer();
  if (silent.empty()) {
    Abort(StrCat("split: ", group.status().message()));
  } else {
    End(DeadlineExceededError(StrCat(Name(), " gave up: split, waiting for rank ", StrJoin(silent, ", "),
                                     ": ", group.status().message())));
  }
  return WithContext(status(), "split");
}

StatusOr<std::shared_ptr<HostGroup>> HostGroup::SplitOff(const SplitChoice& mine) {
  const auto gather = [this](std::span<const char> in, std::span<char> out) {
    return Gather(internal::Purpose::kSplit, in, out);
  };
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<SplitChoice> choices, Gather(internal::Purpose::kSplit, mine));
  GroupStore store(size(), StrCat(mine.color, "/"), gather);
  std::shared_ptr<HostGroup> group;
  if (mine.color >= 0) {
    const SplitGroup split = GroupOf(rank(), choices, topology_);
    const RankRange node = split.nodes[split.node];
    HostCommunicatorOptions options = options_;
    options.rank = Rank(split.rank);
    options.world_size = static_cast<int>(split.members.size());
    options.local_rank = LocalRank(split.rank - node.lo);
    options.local_world_size = node.size();
    options.group_rank = GroupRank(split.node);
    options.group_world_size = static_cast<int>(split.nodes.size());
    options.world_ranks.clear();
    for (const int member : split.members) options.world_ranks.push_back(topology_.WorldRank(member));
    DDPRUN_ASSIGN_OR_RETURN(group, MakeGroup(options, &store, std::nullopt, fabric_, shared_from_this()));
  }
  if (!store.exchanged()) DDPRUN_RETURN_IF_ERROR(store.Exchange());  // a group of one, or none
  return group;
}

Status HostGroup::CheckPlans(const std::vector<AllocationPlan>& plans, const MemoryRoom& room) const {
  for (int r = 0; r < size(); ++r) {
    const AllocationPlan &first = plans[0], &plan = plans[r];
    if (plan.dtype == first.dtype && plan.count == first.count) continue;
    return InvalidArgumentError(StrCat("the calls of round ", round_, " differ: rank ",
                                       topology_.WorldRank(0), " allocates ", first.count, " ",
                                       NameOf(first.dtype), ", rank ", topology_.WorldRank(r), " allocates ",
                                       plan.count, " ", NameOf(plan.dtype)));
  }
  for (int r = 0; r < size(); ++r) {
    if (plans[r].num_bytes <= plans[r].room) continue;
    const std::string by = r == rank() ? room.limited_by : "its control group or machine";
    return CheckRoom({.num_bytes = plans[r].room, .limited_by = by}, plans[r].num_bytes,
                     StrCat("the buffers on the node of rank ", topology_.WorldRank(r)));
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<void>> HostGroup::Allocate(DType dtype, int64_t count) {
  const RetireGate::Use use(gate_);
  if (!use) return WithContext(status(), "allocate");
  const internal::Purpose purpose = internal::Purpose::kAllocate;
  const MemoryRoom room = RoomOfThisProcess(options_.system_root);
  const int num_local = segment_.layout().num_ranks;
  const size_t part_bytes = static_cast<size_t>(count) * SizeOf(dtype);
  const uint64_t num_bytes = Region::SizeOf(num_local, part_bytes);
  const AllocationPlan mine{.dtype = dtype,
                            .count = count,
                            .offset = next_region_,
                            .num_bytes = num_bytes,
                            .room = room.num_bytes,
                            .fits_file = num_bytes <= segment_.unused().end - next_region_};
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<AllocationPlan> plans, Gather(purpose, mine), "allocate");
  DDPRUN_RETURN_IF_ERROR(CheckPlans(plans, room), "allocate");

  // A failure of one rank fails all, and is no reason to end communication.
  const AllocationPlan& of_node = plans[rank() - local_rank_];
  StatusOr<Allocation> own = num_local > 1 && of_node.fits_file ? AllocateRegion(of_node.offset, part_bytes)
                                                                : AllocatePrivate(part_bytes);
  const Status status = own.ok() ? OkStatus() : own.status();
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int32_t> codes,
                          Gather(purpose, static_cast<int32_t>(status.code())), "allocate");
  const auto failed = std::ranges::find_if(codes, [](int32_t code) { return code != 0; });
  // No rank uses the region. A rank that could not map it does not count among those that release it.
  if (failed != codes.end() && own.ok() && own->region != nullptr) own->region->Discard(local_rank_);
  if (!status.ok()) return WithContext(status, "allocate");
  if (failed != codes.end()) {
    const int r = static_cast<int>(failed - codes.begin());
    return ResourceExhaustedError(
        StrCat("allocate: rank ", topology_.WorldRank(r), " has no memory for ", count, " ", NameOf(dtype)));
  }
  if (own->region != nullptr) {
    ++num_regions_;
    collectives_.AddRegion(own->region);
  }
  return own->memory;
}

StatusOr<HostGroup::Allocation> HostGroup::AllocateRegion(uint64_t offset, size_t part_bytes) {
  const int num_local = segment_.layout().num_ranks;
  next_region_ = offset + Region::SizeOf(num_local, part_bytes);
  DDPRUN_ASSIGN_OR_RETURN(
      std::shared_ptr<Region> region,
      Region::Map(segment_.fd(), static_cast<off_t>(offset), num_regions_, num_local, part_bytes));
  std::shared_ptr<void> memory(region->part(local_rank_), [region](void*) { region->Release(); });
  DDPRUN_RETURN_IF_ERROR(region->Reserve(segment_.fd(), local_rank_));
  return Allocation{.memory = std::move(memory), .region = std::move(region)};
}

StatusOr<HostGroup::Allocation> HostGroup::AllocatePrivate(size_t num_bytes) {
  const size_t size = std::max<size_t>(num_bytes, 1);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoToStatus(errno, StrCat("mapping ", size, " bytes"));
  return Allocation{.memory = {memory, [size](void* p) { munmap(p, size); }}, .region = nullptr};
}

StatusOr<Communicator> Create(const HostCommunicatorOptions& options, Store* store,
                              std::optional<AllReduceAlgorithm> only) {
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroup> group,
                          MakeGroup(options, store, only, std::make_shared<Fabric>(), nullptr));
  return Communicator(std::move(group));
}

}  // namespace

StatusOr<std::shared_ptr<HostGroupInterface>> CreateHostGroup(const HostCommunicatorOptions& options,
                                                              Store* store, std::shared_ptr<Fabric> fabric) {
  if (fabric == nullptr) fabric = std::make_shared<Fabric>();
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroup> group,
                          MakeGroup(options, store, std::nullopt, fabric, nullptr));
  return std::shared_ptr<HostGroupInterface>(std::move(group));
}

StatusOr<Communicator> CreateHostCommunicator(const HostCommunicatorOptions& options, Store* store) {
  return Create(options, store, std::nullopt);
}

StatusOr<Communicator> CreateHostCommunicatorForTest(const HostCommunicatorOptions& options, Store* store,
                                                     AllReduceAlgorithm only) {
  return Create(options, store, only);
}

}  // namespace ddprun
