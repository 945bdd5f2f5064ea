// The scenarios in which the ranks form groups.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/host/hostile_peer.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/host/scenario_operations.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Runs random operations in `group`, with up to four in flight. Returns the first error.
Status RunRandom(Communicator& group, uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<Started>> in_flight;
  for (int index = 0; index < count; ++index) {
    in_flight.push_back(StartRandom(group, index, random));
    if (index + 1 < count && in_flight.size() < 1 + random() % 4) continue;
    for (auto& started : in_flight) DDPRUN_RETURN_IF_ERROR(Finish(*started));
    in_flight.clear();
  }
  return OkStatus();
}

// Bytes of the segments of this process that have memory.
int64_t SharedBytes() {
  int64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (!std::filesystem::read_symlink(entry, ignored).string().starts_with("/memfd:ddprun-comm")) continue;
    struct stat st;
    if (stat(entry.path().c_str(), &st) == 0) sum += st.st_blocks * 512;
  }
  return sum;
}

}  // namespace

// groups: splits the world in several ways, and checks the ranks of the groups and the results of their operations.
int OperateInGroups(const RankProcess& self, Communicator& world) {
  const int rank = world.rank(), size = world.size();
  struct Way {
    int color, key;
    int expected_rank, expected_size;
  };
  const int rows = (size + 1) / 2;
  const Way ways[] = {
      {rank / 2, 0, rank % 2, std::min(2, size - rank / 2 * 2)},        // neighbors
      {rank % 2, rank, rank / 2, rank % 2 == 0 ? rows : size - rows},   // strided
      {0, -rank, size - 1 - rank, size},                                // reversed
      {0, rank % 2, rank % 2 == 0 ? rank / 2 : rows + rank / 2, size},  // interleaved
      {rank == 0 ? Communicator::kNoColor : 3, 0, rank - 1, rank == 0 ? 0 : size - 1},
      {rank, 0, 0, 1},
  };
  std::vector<Communicator> groups;
  for (const Way& way : ways) {
    StatusOr<Communicator> group = world.Split(way.color, way.key);
    if (!group.ok()) return Fail(self, group.status().ToString());
    if (group->rank() != (way.expected_size == 0 ? -1 : way.expected_rank) ||
        group->size() != way.expected_size) {
      return Fail(self, StrCat("rank ", group->rank(), " of ", group->size(), " in group ", groups.size()));
    }
    if (group->size() > 0) groups.push_back(*std::move(group));
  }
  // A group of a group.
  if (groups[0].size() == 2) {
    StatusOr<Communicator> again = groups[0].Split(0, -groups[0].rank());
    if (!again.ok()) return Fail(self, again.status().ToString());
    if (again->rank() != 1 - groups[0].rank()) return Fail(self, "wrong rank in a group of a group");
    groups.push_back(*std::move(again));
  }
  for (Communicator& group : groups) {
    if (Status s = RunRandom(group, 5, 12); !s.ok()) return Fail(self, s.ToString());
  }
  // All groups at once, each in a thread of its own.
  std::vector<std::future<Status>> runs;
  for (Communicator& group : groups) {
    runs.push_back(std::async(std::launch::async, [&] { return RunRandom(group, 6, 12); }));
  }
  for (auto& run : runs) {
    if (Status s = run.get(); !s.ok()) return Fail(self, StrCat(s.ToString(), " in a thread"));
  }
  // From one thread: an operation of each group is started before any is waited for. Ranks start and wait in opposite
  // orders.
  std::vector<std::vector<double>> values(groups.size());
  std::vector<Work> works(groups.size());
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  for (const size_t n : {1, 100000}) {
    if (rank % 2 == 1) std::ranges::reverse(order);
    for (const size_t g : order) {
      values[g].assign(n, 1 + groups[g].rank());
      works[g] = groups[g].AllReduce(View(values[g]), ReduceOp::kSum);
    }
    std::ranges::reverse(order);
    for (const size_t g : order) {
      if (Status s = works[g].Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
      const int k = groups[g].size();
      if (values[g] != std::vector<double>(n, k * (k + 1) / 2)) return Fail(self, "wrong sum in a group");
    }
  }
  // The world outlives its handle, because the groups need it.
  world = Communicator();
  for (Communicator& group : groups) {
    if (Status s = group.Barrier().Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  }
  return 0;
}

// allocate: allocates buffers, operates on them and on parts of them, and frees them.
int OperateOnBuffers(const RankProcess& self, Communicator& world) {
  const int rank = world.rank(), size = world.size();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{100000}}) {
    StatusOr<Buffer> first = world.Allocate(DType::kInt64, n), second = world.Allocate(DType::kInt64, n);
    if (!first.ok()) return Fail(self, first.status().ToString());
    if (!second.ok()) return Fail(self, second.status().ToString());
    const auto values_of = [&](const Buffer& buffer) {
      return std::span(static_cast<int64_t*>(buffer.tensor().data), static_cast<size_t>(n));
    };
    const std::span<int64_t> a = values_of(*first), b = values_of(*second);
    if (std::ranges::any_of(a, [](int64_t x) { return x != 0; })) return Fail(self, "new memory is not zero");
    std::vector<int64_t> own(n);
    const int64_t ranks = size * (size + 1) / 2;
    const auto fill = [&](std::span<int64_t> values) {
      for (int64_t i = 0; i < n; ++i) values[i] = (i + 1) * (rank + 1);
    };
    const auto check = [&](std::span<const int64_t> values, std::string_view what) -> Status {
      for (int64_t i = 0; i < n; ++i) {
        if (values[i] != (i + 1) * ranks) return InternalError(StrCat("wrong sum ", i, " of ", n, " ", what));
      }
      return OkStatus();
    };
    const auto reduce = [&](std::span<int64_t> in, std::span<int64_t> out, std::string_view what) -> Status {
      fill(in);
      DDPRUN_RETURN_IF_ERROR(
          world.AllReduce(View(std::span<const int64_t>(in)), View(out), ReduceOp::kSum).Wait(Soon()));
      return check(out, what);
    };
    // In place, out of place, and on some ranks in memory of their own.
    for (int round = 0; round < 3; ++round) {
      const std::span<int64_t> mixed_in = (rank + round) % 2 == 0 ? a : std::span(own);
      const std::span<int64_t> mixed_out = (rank + round) % 3 == 0 ? b : std::span(own);
      for (Status s :
           {reduce(a, a, "in place"), reduce(a, b, "from buffer to buffer"), reduce(own, b, "into a buffer"),
            reduce(b, own, "from a buffer"), reduce(mixed_in, mixed_out, "mixed")}) {
        if (!s.ok()) return Fail(self, s.ToString());
      }
    }
    // Parts of a buffer, several in flight.
    fill(a);
    std::vector<Work> works;
    for (int64_t begin = 0; begin < n; begin += 33333) {
      works.push_back(
          world.AllReduce(View(a.subspan(begin, std::min<int64_t>(33333, n - begin))), ReduceOp::kSum));
    }
    for (Work& work : works) {
      if (Status s = work.Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
    }
    if (Status s = check(a, "of parts"); !s.ok()) return Fail(self, s.ToString());
    // The second buffer outlives the first one on some ranks, and later ones have other memory.
    if (rank % 2 == 0) *first = Buffer();
    if (Status s = reduce(own, b, "after a release"); !s.ok()) return Fail(self, s.ToString());
  }
  // A buffer outlives the communicator.
  StatusOr<Buffer> last = world.Allocate(DType::kUInt8, 5000);
  if (!last.ok()) return Fail(self, last.status().ToString());
  world = Communicator();
  std::memset(last->tensor().data, 7, 5000);
  return static_cast<char*>(last->tensor().data)[4999] == 7 ? 0 : kWrongResult;
}

// allocate-differ: the last rank allocates another number of elements. All ranks fail, and can then allocate.
int AllocateDifferently(const RankProcess& self, Communicator& world) {
  const bool last = world.rank() == world.size() - 1;
  const Status differs = world.Allocate(DType::kFloat32, last ? 999 : 1000).status();
  if (const Status s = world.Allocate(DType::kFloat32, 10).status(); !s.ok()) return Fail(self, s.ToString());
  return Report(self, differs);
}

// allocate-much <root> <count>: the last rank's machine has less memory than the buffers need. All ranks fail, and can
// then allocate less.
int AllocateTooMuch(const RankProcess& self, Communicator& world) {
  const Status full = world.Allocate(DType::kFloat64, std::stoll(self.args[2])).status();
  if (const Status s = world.Allocate(DType::kFloat64, 10).status(); !s.ok()) return Fail(self, s.ToString());
  return Report(self, full);
}

// allocate-unmapped <ranks of the last node>: the last rank has no address space for the buffers of its node. All ranks
// fail and free their memory, and can then allocate less.
int AllocateWithoutAddressSpace(const RankProcess& self, Communicator& world) {
  constexpr int64_t kRoom = 128 << 20;
  const int64_t part = kRoom / std::stoi(self.args[1]) + (1 << 20);  // one part fits, all parts do not
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  const TimePoint give_up = Soon();
  // While malloc creates the arena of a thread, it has more address space for a moment, and the limit would be too high.
  for (bool fits = world.rank() == world.size() - 1; fits;) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit less{.rlim_cur = static_cast<rlim_t>(pages * getpagesize() + kRoom),
                      .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_AS, &less) != 0) return Fail(self, "setrlimit");
    const size_t all_parts = std::stoi(self.args[1]) * part;
    void* const all = mmap(nullptr, all_parts, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fits = all != MAP_FAILED;
    if (fits) munmap(all, all_parts);
    if (std::chrono::steady_clock::now() > give_up)
      return Fail(self, "the address space does not become constant");
  }
  const int64_t before = SharedBytes();
  const Status full = world.Allocate(DType::kUInt8, part).status();
  setrlimit(RLIMIT_AS, &limit);
  // All ranks have freed their parts once they meet.
  if (const Status s = world.Barrier().Wait(Soon()); !s.ok()) return Fail(self, s.ToString());
  if (const int64_t kept = SharedBytes() - before; kept > part / 2) {
    return Fail(self, StrCat(kept, " bytes of shared memory are still allocated"));
  }
  if (const Status s = world.Allocate(DType::kFloat64, 10).status(); !s.ok()) return Fail(self, s.ToString());
  return Report(self, full);
}

// split-leave <leaver>: one rank leaves while the others split the world.
int SplitAfterALeaver(const RankProcess& self, Communicator world) {
  MeetInStore(self);
  if (world.rank() == std::stoi(self.args[1])) {
    world = Communicator();
    return Report(self, OkStatus());
  }
  const Status split = world.Split(0).status();
  const Status later = world.Barrier().Wait(Soon());
  if (later.ok()) return Fail(self, "a barrier succeeds after the split has failed");
  return Report(self, split);
}

// hostile: every rank is attacked by a hostile peer while it connects, splits the world, and exchanges messages in the
// world and in its groups.
int ConnectBesideAHostilePeer(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  HostilePeer hostile(self.options);
  if (self.options.rank != Rank(0)) {
    // So that the listeners of rank 0 are attacked before the expected connections arrive.
    if (const auto first = store.Get("attacked", seconds(60)); !first.ok())
      return Fail(self, first.status().ToString());
  }
  std::thread attacked([&] {
    if (self.options.rank != Rank(0)) return;
    hostile.AwaitFirst();
    (void)store.Set("attacked", "");
  });
  StatusOr<Communicator> world = CreateHostCommunicator(self.options, &store);
  attacked.join();
  if (!world.ok()) return Fail(self, world.status().ToString());
  const auto use = [&](Communicator& group) -> Status {
    std::vector<int32_t> out(1000, group.rank()), in(1000 * group.size(), group.rank());
    std::vector<Work> works;
    for (int r = 0; r < group.size(); ++r) {
      if (r == group.rank()) continue;
      works.push_back(group.Receive(View(std::span(in).subspan(r * 1000, 1000)), r));
      works.push_back(group.Send(View(out), r));
    }
    for (Work& work : works) DDPRUN_RETURN_IF_ERROR(work.Wait(Soon()));
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != static_cast<int32_t>(i / 1000)) return InternalError("wrong element");
    }
    return group.Barrier().Wait(Soon());
  };
  if (Status s = use(*world); !s.ok()) return Fail(self, s.ToString());
  for (int i = 0; i < 5; ++i) {
    StatusOr<Communicator> group = world->Split(i % 2 == 0 ? 0 : world->rank() % 2);
    if (!group.ok()) return Fail(self, group.status().ToString());
    if (Status s = use(*group); !s.ok()) return Fail(self, StrCat(s.ToString(), " in group ", i));
  }
  hostile.Stop();
  if (hostile.was_answered()) return Fail(self, "a listener has answered a wrong greeting");
  if (hostile.num_connections() == 0 && self.options.rank == Rank(0))
    return Fail(self, "no listener was found");
  return 0;
}

// split-forever: splits the world again and again.
int SplitForever(const RankProcess& self, Communicator& world) {
  FakeFileStore store(self.store_dir);
  for (int i = 0;; ++i) {
    if (i == 2) (void)store.Set(StrCat("ready/", self.options.rank.value()), "");
    const StatusOr<Communicator> group = world.Split(world.rank() % 2, 0);
    if (!group.ok()) return Report(self, group.status());
  }
}

// group-forever: runs all-reduces in a group of neighbors until one fails.
int ReduceInAGroupForever(const RankProcess& self, Communicator& world) {
  StatusOr<Communicator> group = world.Split(world.rank() / 2);
  if (!group.ok()) return Fail(self, group.status().ToString());
  world = Communicator();
  return ReduceForever(self, *group);
}

}  // namespace ddprun
