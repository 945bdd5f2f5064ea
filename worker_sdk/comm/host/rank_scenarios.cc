#include "worker_sdk/comm/host/rank_scenarios.h"

#include <signal.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/all_reduce_choice.h"
#include "worker_sdk/comm/host/fault_scenarios.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/host/message_scenarios.h"
#include "worker_sdk/comm/host/scenario_operations.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using internal::OpKind;

// random <seed> <count>: runs operations of all kinds and sizes, with up to eight in flight, and compares
// their results bit by bit.
int RandomOperations(const RankProcess& self, Communicator& comm) {
  std::mt19937 random(std::stoi(self.args[1]));
  const int count = std::stoi(self.args[2]);
  std::vector<std::unique_ptr<Started>> in_flight;
  for (int index = 0; index < count; ++index) {
    in_flight.push_back(StartRandom(comm, index, random));
    if (index + 1 < count && in_flight.size() < 1 + random() % 8) continue;
    for (auto& started : in_flight) {
      if (Status s = Finish(*started); !s.ok()) return Fail(self, StrCat(s.ToString(), " before ", index));
    }
    in_flight.clear();
  }
  return 0;
}

// algorithm <number>: computes sums and means of types of all sizes with one algorithm, at sizes near the boundaries of
// slices, pieces and chunks, and compares the results with the definition bit by bit.
int ReduceWithOneAlgorithm(const RankProcess& self, Communicator& comm) {
  int index = 0;
  for (const size_t n : {0, 1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 512, 1000, 1023, 1024, 1025, 5000}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kUInt8}) {
      const ReduceOp op = index % 2 == 0 || dtype == DType::kUInt8 ? ReduceOp::kSum : ReduceOp::kMean;
      auto started = StartOperation(comm, OpKind::kAllReduce, dtype, op, 0, n, /*in_place=*/true, index++);
      if (Status s = Finish(*started); !s.ok())
        return Fail(self, StrCat(s.ToString(), " of ", n, " ", NameOf(dtype)));
    }
  }
  return 0;
}

// chain: starts operations that use the output of earlier ones, without waiting in between.
int ChainOperations(const RankProcess& self, Communicator& comm) {
  const int world = comm.size(), rank = comm.rank();
  for (int index = 0; index < 40; ++index) {
    const size_t n = index % 2 == 0 ? 100 : 3000;  // one shot, and several chunks
    std::vector<int64_t> values(n * world), parts(n), gathered(n * world), again(n * world);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i + index) * (rank + 1);
    Work works[] = {comm.AllReduce(View(values), ReduceOp::kSum),
                    comm.AllReduce(View(values), ReduceOp::kMax),
                    comm.ReduceScatter(View(values), View(parts), ReduceOp::kSum),
                    comm.AllGather(View(parts), View(gathered)),
                    comm.AllToAll(View(gathered), View(again)),
                    comm.AllReduce(View(again), ReduceOp::kSum)};
    for (Work& work : works) {
      if (Status s = work.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    }
    const int64_t ranks = world * (world + 1) / 2;
    for (size_t i = 0; i < gathered.size(); ++i) {
      const int64_t sum = static_cast<int64_t>(i + index) * ranks;
      if (values[i] != sum) return Fail(self, StrCat("wrong sum ", i, " of chain ", index));
      if (gathered[i] != sum * world) return Fail(self, StrCat("wrong element ", i, " of chain ", index));
    }
    // Part s of `again` is part `rank` of `gathered`, from each rank s; then summed over the ranks.
    for (size_t i = 0; i < again.size(); ++i) {
      int64_t sum = 0;
      for (int r = 0; r < world; ++r) sum += gathered[r * n + i % n];
      if (again[i] != sum) return Fail(self, StrCat("wrong exchange ", i, " of chain ", index));
    }
  }
  return 0;
}

// in-place: operations in which the input is a part of the output, or the reverse.
int OperateInPlace(const RankProcess& self, Communicator& comm) {
  const int world = comm.size(), rank = comm.rank();
  for (const int64_t n : {int64_t{1}, int64_t{100}, int64_t{3000}}) {
    std::vector<int64_t> all(n * world);
    for (int64_t i = 0; i < n * world; ++i) all[i] = i * (rank + 1);
    const Tensor mine{all.data() + rank * n, n, DType::kInt64};
    if (Status s = comm.ReduceScatter(View(all), mine, ReduceOp::kSum).Wait(Soon()); !s.ok())
      return Fail(self, s.ToString());
    if (Status s = comm.AllGather(mine, View(all)).Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    for (int64_t i = 0; i < n * world; ++i) {
      if (all[i] != i * world * (world + 1) / 2) return Fail(self, StrCat("wrong element ", i, " of ", n));
    }
    std::vector<double> sum(n, rank);
    if (Status s = comm.Reduce(View(sum), View(sum), ReduceOp::kSum, world - 1).Wait(Soon()); !s.ok()) {
      return Fail(self, s.ToString());
    }
    const double expected = rank == world - 1 ? world * (world - 1) / 2 : rank;
    if (sum != std::vector<double>(n, expected)) return Fail(self, "wrong reduction in place");
  }
  return 0;
}

// flush: rank 0 flushes denormal numbers to zero and rounds up. The sums do not depend on this.
int ReduceInAnotherMode(const RankProcess& self, Communicator& comm) {
#if defined(__x86_64__)
  if (comm.rank() == 0) _mm_setcsr(0x1F80 | 0x8040 | 0x4000);  // FTZ, DAZ, round up
#endif
  std::vector<float> tiny(1000, 1e-40f), inexact(1000, comm.rank() == 0 ? 1.0f : 1e-10f);
  if (Status s = comm.AllReduce(View(tiny), ReduceOp::kSum).Wait(Soon()); !s.ok())
    return Fail(self, s.ToString());
  if (Status s = comm.AllReduce(View(inexact), ReduceOp::kSum).Wait(Soon()); !s.ok())
    return Fail(self, s.ToString());
#if defined(__x86_64__)
  if (comm.rank() == 0 && (_mm_getcsr() & 0x8040) != 0x8040)
    return Fail(self, "the caller's mode has changed");
  _mm_setcsr(0x1F80);
#endif
  for (size_t i = 0; i < tiny.size(); ++i) {
    if (tiny[i] == 0.0f || tiny[i] != static_cast<float>(comm.size()) * 1e-40f)
      return Fail(self, "a denormal sum is wrong");
    if (inexact[i] != 1.0f) return Fail(self, "a sum was not rounded to the nearest number");
  }
  return 0;
}

// stop <victim>: the victim stops itself during its sixth all-reduce. From that all-reduce on, the others use
// a short deadline.
int StopInTheMiddle(const RankProcess& self, Communicator& comm) {
  constexpr int kStop = 5;
  const bool victim = comm.rank() == std::stoi(self.args[1]);
  std::vector<float> values(1 << 16, 1.0f);
  for (int i = 0;; ++i) {
    Work pending = comm.AllReduce(View(values), ReduceOp::kMean);
    if (victim && i == kStop) raise(SIGSTOP);
    Status s = pending.Wait(i < kStop ? Soon() : Clock::now() + milliseconds(500));
    if (!s.ok()) return Report(self, s);
  }
}

// ahead <n>: the last rank starts its first operation, of n numbers, after the others have started two, and leaves
// after that operation.
int StartAhead(const RankProcess& self, Communicator& comm) {
  const bool last = comm.rank() == comm.size() - 1;
  const size_t n = std::stoul(self.args[1]);
  std::vector<float> first(n, 1.0f), second(n, 1.0f);
  if (last) {
    MeetInStore(self);
    return Report(self, comm.AllReduce(View(first), ReduceOp::kSum).Wait(Soon()));
  }
  Work pending = comm.AllReduce(View(first), ReduceOp::kSum);
  Work more = comm.AllReduce(View(second), ReduceOp::kSum);
  MeetInStore(self);
  if (Status s = pending.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  if (first != std::vector<float>(n, static_cast<float>(comm.size()))) return Fail(self, "wrong sum");
  return Report(self, more.Wait(Soon()));
}

// two: like `ahead`, but the last rank starts the second operation as well, after a barrier on another
// communicator.
int StartAheadOfAnother(const RankProcess& self, Communicator& comm, Communicator& other) {
  const bool last = comm.rank() == comm.size() - 1;
  std::vector<float> first(1000, 1.0f), second(1000, 1.0f);
  Work pending, more;
  if (last) MeetInStore(self);
  pending = comm.AllReduce(View(first), ReduceOp::kSum);
  if (!last) more = comm.AllReduce(View(second), ReduceOp::kSum);
  if (!last) MeetInStore(self);
  const TimePoint deadline = Clock::now() + seconds(20);
  if (Status s = pending.Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  if (Status s = other.Barrier().Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  if (last) more = comm.AllReduce(View(second), ReduceOp::kSum);
  if (Status s = more.Wait(deadline); !s.ok()) return Fail(self, s.ToString());
  return 0;
}

// differ-*: the last rank behaves differently from the other ranks.
int LastRankDiffers(const RankProcess& self, Communicator& comm) {
  const bool last = comm.rank() == comm.size() - 1;
  const std::string& what = self.args[0];
  std::vector<float> values(1000, 1.0f);
  Status s;
  if (what != "differ-leave") MeetInStore(self);
  if (what == "differ-size") {
    s = comm.AllReduce(View(std::span(values).first(last ? 999 : 1000)), ReduceOp::kSum).Wait(Soon());
  } else if (what == "differ-abort") {
    if (last) comm.Abort("out of memory");
    s = comm.Barrier().Wait(Soon());
  } else if (what == "differ-kind") {
    s = last ? comm.Broadcast(View(values), 0).Wait(Soon())
             : comm.AllReduce(View(values), ReduceOp::kMax).Wait(Soon());
  } else if (what == "differ-root") {
    s = comm.Broadcast(View(values), last ? comm.rank() : 0).Wait(Soon());
    if (s.ok()) s = comm.Barrier().Wait(Soon());
  } else if (what == "differ-argument") {
    s = comm.AllReduce(View(values), last ? ReduceOp(99) : ReduceOp::kSum).Wait(Soon());
  } else if (what == "differ-leave") {
    if (last) return Report(self, OkStatus());
    s = comm.AllReduce(View(values), ReduceOp::kSum).Wait(Soon());
  }
  return Report(self, s);
}

// late: node 0 runs broadcasts and leaves; the other nodes start theirs after node 0's processes have exited.
int LateToBroadcasts(const RankProcess& self, Communicator& comm) {
  if (self.options.group_rank != GroupRank(0)) {
    FakeFileStore store(self.store_dir);
    const auto gone = store.Get(kFirstNodeGone, seconds(60));
    if (!gone.ok()) return Fail(self, gone.status().ToString());
  }
  for (int index = 0; index < 5; ++index) {
    auto started = StartOperation(comm, OpKind::kBroadcast, DType::kUInt8, ReduceOp::kSum, 0, 1000,
                                  /*in_place=*/true, index);
    if (Status s = Finish(*started); !s.ok()) return Fail(self, StrCat(s.ToString(), " of ", index));
  }
  return 0;
}

}  // namespace

// forever: runs all-reduces until one fails.
int ReduceForever(const RankProcess& self, Communicator& comm) {
  FakeFileStore store(self.store_dir);
  std::vector<float> values(1 << 20, 1.0f);
  for (int i = 0;; ++i) {
    Work pending = comm.AllReduce(View(values), ReduceOp::kMean);
    if (i == 3) (void)store.Set(StrCat("ready/", self.options.rank.value()), "");
    Status s = pending.Wait(Soon());
    if (s.ok()) continue;
    // The communicator is dead: later operations fail with the same error.
    const Status again = comm.AllReduce(View(values), ReduceOp::kSum).Wait(Soon());
    if (again != s) return Fail(self, StrCat("then: ", again.ToString(), ", first: ", s.ToString()));
    return Report(self, s);
  }
}

void MeetInStore(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  (void)store.Set(StrCat("here/", self.options.rank.value()), "");
  for (int r = 0; r < self.options.world_size; ++r) {
    (void)store.Get(StrCat("here/", r), seconds(60)).status();
  }
}

int RunRank(const RankProcess& self) {
  HostCommunicatorOptions options = self.options;
  if (self.args[0] == "random" || self.args[0] == "algorithm" || self.args[0] == "chain" ||
      self.args[0] == "in-place" || self.args[0] == "overlap" || self.args[0] == "groups" ||
      self.args[0] == "allocate")
    options.chunk_bytes = 4096;
  // The last rank sees a machine with little memory.
  if ((self.args[0] == "allocate-much" || self.args[0] == "no-memory") &&
      options.rank.value() + 1 == options.world_size) {
    options.system_root = self.args[1];
  }
  if (self.args[0] == "fault" && std::stoi(self.args[4]) == SIGSTOP) {
    options.timeout = kFaultDeadline;
    options.setup_timeout = kFaultSetupTimeout;
  }
  if (self.args[0] == "hostile") return ConnectBesideAHostilePeer(self);
  FakeFileStore store(self.store_dir);
  auto comm = self.args[0] == "algorithm" ? CreateHostCommunicatorForTest(
                                                options, &store, AllReduceAlgorithm{std::stoi(self.args[1])})
                                          : CreateHostCommunicator(options, &store);
  if (!comm.ok()) {
    Report(self, comm.status());
    return Fail(self, comm.status().ToString());
  }
  if (self.args[0].starts_with("message-")) return RunMessageScenario(self, *std::move(comm));
  if (self.args[0] == "ahead") return StartAhead(self, *comm);
  if (self.args[0] == "two") {
    FakeFileStore other_store(self.store_dir + "/other");
    auto other = CreateHostCommunicator(options, &other_store);
    if (!other.ok()) return Fail(self, other.status().ToString());
    return StartAheadOfAnother(self, *comm, *other);
  }
  if (self.args[0] == "algorithm") return ReduceWithOneAlgorithm(self, *comm);
  if (self.args[0] == "chain") return ChainOperations(self, *comm);
  if (self.args[0] == "in-place") return OperateInPlace(self, *comm);
  if (self.args[0] == "flush") return ReduceInAnotherMode(self, *comm);
  if (self.args[0] == "random") return RandomOperations(self, *comm);
  if (self.args[0] == "late") return LateToBroadcasts(self, *comm);
  if (self.args[0] == "stop") return StopInTheMiddle(self, *comm);
  if (self.args[0] == "allocate") return OperateOnBuffers(self, *comm);
  if (self.args[0] == "allocate-differ") return AllocateDifferently(self, *comm);
  if (self.args[0] == "allocate-much") return AllocateTooMuch(self, *comm);
  if (self.args[0] == "allocate-unmapped") return AllocateWithoutAddressSpace(self, *comm);
  if (self.args[0] == "split-leave") return SplitAfterALeaver(self, *std::move(comm));
  if (self.args[0] == "groups") return OperateInGroups(self, *comm);
  if (self.args[0] == "split-forever") return SplitForever(self, *comm);
  if (self.args[0] == "group-forever") return ReduceInAGroupForever(self, *comm);
  if (self.args[0] == "fault") return FailWithinAnOperation(self, *comm);
  if (self.args[0] == "overlap") return OperateOnOverlappingMemory(self, *comm);
  if (self.args[0] == "forever") return ReduceForever(self, *comm);
  return LastRankDiffers(self, *comm);
}

}  // namespace ddprun
