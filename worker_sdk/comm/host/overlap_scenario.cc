// The scenario in which operations in flight use overlapping parts of the same memory.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/host/scenario_operations.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::OpKind;

constexpr int64_t kElements = 6000;  // of an arena: a chunk has 512
constexpr int kArenas = 3;

// A part of one rank's arenas.
struct Range {
  int arena;
  int64_t begin;
};

// What one rank's memory should hold.
using Memory = std::vector<std::vector<int64_t>>;  // by arena

// One operation of all ranks.
struct Step {
  OpKind kind;
  ReduceOp op;
  int root;
  int64_t count;  // of the smaller one of input and output
  Range in, out;
};

// Applies `step` to the memory of all ranks.
void Apply(const Step& step, std::vector<Memory>& world) {
  const int size = static_cast<int>(world.size());
  const auto in = [&](int rank, int64_t i) { return world[rank][step.in.arena][step.in.begin + i]; };
  const auto reduced = [&](int64_t i) {
    int64_t value = in(0, i);
    for (int r = 1; r < size; ++r) {
      // Wraps around, as the operation does.
      if (step.op == ReduceOp::kSum)
        value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(in(r, i)));
      if (step.op == ReduceOp::kMax) value = std::max(value, in(r, i));
    }
    return value;
  };
  std::vector<std::vector<int64_t>> results(size);
  for (int r = 0; r < size; ++r) {
    std::vector<int64_t>& result = results[r];
    switch (step.kind) {
      case OpKind::kAllReduce:
        for (int64_t i = 0; i < step.count; ++i) result.push_back(r == 0 ? reduced(i) : results[0][i]);
        break;
      case OpKind::kReduce:
        for (int64_t i = 0; r == step.root && i < step.count; ++i) result.push_back(reduced(i));
        break;
      case OpKind::kReduceScatter:
        for (int64_t i = 0; i < step.count; ++i) result.push_back(reduced(r * step.count + i));
        break;
      case OpKind::kAllGather:
        for (int64_t i = 0; i < step.count * size; ++i) result.push_back(in(i / step.count, i % step.count));
        break;
      case OpKind::kAllToAll:
        for (int64_t i = 0; i < step.count * size; ++i)
          result.push_back(in(i / step.count, r * step.count + i % step.count));
        break;
      default:
        for (int64_t i = 0; i < step.count; ++i) result.push_back(in(step.root, i));
    }
  }
  for (int r = 0; r < size; ++r) {
    std::copy(results[r].begin(), results[r].end(), world[r][step.out.arena].begin() + step.out.begin);
  }
}

// Returns a step whose input and output are equal or disjoint.
Step RandomStep(std::mt19937& random, int size) {
  constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kAllReduce,     OpKind::kAllReduce,
                               OpKind::kReduce,    OpKind::kReduceScatter, OpKind::kAllGather,
                               OpKind::kAllToAll,  OpKind::kBroadcast};
  Step step{.kind = kKinds[random() % std::size(kKinds)],
            .op = random() % 3 == 0 ? ReduceOp::kMax : ReduceOp::kSum,
            .root = static_cast<int>(random() % size),
            .count = static_cast<int64_t>(random() % 5 == 0 ? random() % 8 : random() % (kElements / 2)),
            .in = {},
            .out = {}};
  const bool has_large_in = step.kind == OpKind::kReduceScatter || step.kind == OpKind::kAllToAll;
  const bool has_large_out = step.kind == OpKind::kAllGather || step.kind == OpKind::kAllToAll;
  if (has_large_in || has_large_out) step.count /= size;
  const int64_t num_in = step.count * (has_large_in ? size : 1);
  const int64_t num_out = step.count * (has_large_out ? size : 1);
  const auto place = [&](int64_t n) {
    return Range{static_cast<int>(random() % kArenas), static_cast<int64_t>(random() % (kElements - n + 1))};
  };
  step.in = place(num_in);
  const bool may_be_in_place = step.kind == OpKind::kAllReduce || step.kind == OpKind::kReduce;
  if (step.kind == OpKind::kBroadcast || (may_be_in_place && random() % 2 == 0)) {
    step.out = step.in;
    return step;
  }
  do {
    step.out = place(num_out);
  } while (step.out.arena == step.in.arena && step.out.begin < step.in.begin + num_in &&
           step.in.begin < step.out.begin + num_out);
  return step;
}

}  // namespace

// overlap <seed> <count>: all ranks know one list of operations on parts of three arenas. Each rank has some of the
// arenas in buffers and others in memory of its own. Up to ten operations are in flight. The results are compared with
// those of the same operations one after the other.
int OperateOnOverlappingMemory(const RankProcess& self, Communicator& comm) {
  const int rank = comm.rank(), size = comm.size(), count = std::stoi(self.args[2]);
  std::mt19937 random(std::stoi(self.args[1]));  // equal on all ranks
  std::vector<Memory> world(size, Memory(kArenas, std::vector<int64_t>(kElements)));
  for (Memory& memory : world) {
    for (auto& arena : memory) {
      for (int64_t& value : arena) value = static_cast<int64_t>(random());
    }
  }
  Memory own(kArenas);
  std::vector<Buffer> buffers;
  std::vector<int64_t*> arenas;
  for (int a = 0; a < kArenas; ++a) {
    StatusOr<Buffer> buffer = comm.Allocate(DType::kInt64, kElements);
    if (!buffer.ok()) return Fail(self, buffer.status().ToString());
    buffers.push_back(*std::move(buffer));
    own[a].resize(kElements);
    // The first arena is a buffer on all ranks.
    const bool is_buffer = a == 0 || (rank + a) % 2 == 0;
    arenas.push_back(is_buffer ? static_cast<int64_t*>(buffers[a].tensor().data) : own[a].data());
    std::copy(world[rank][a].begin(), world[rank][a].end(), arenas[a]);
  }
  const auto tensor = [&](const Range& place, int64_t n) {
    return Tensor{arenas[place.arena] + place.begin, n, DType::kInt64};
  };
  std::vector<Work> in_flight;
  for (int i = 0; i < count; ++i) {
    const Step step = RandomStep(random, size);
    const Tensor in = tensor(step.in, step.count), out = tensor(step.out, step.count);
    const Tensor large_in = tensor(step.in, step.count * size),
                 large_out = tensor(step.out, step.count * size);
    switch (step.kind) {
      case OpKind::kAllReduce:
        in_flight.push_back(comm.AllReduce(in, out, step.op));
        break;
      case OpKind::kReduce:
        in_flight.push_back(comm.Reduce(in, out, step.op, step.root));
        break;
      case OpKind::kReduceScatter:
        in_flight.push_back(comm.ReduceScatter(large_in, out, step.op));
        break;
      case OpKind::kAllGather:
        in_flight.push_back(comm.AllGather(in, large_out));
        break;
      case OpKind::kAllToAll:
        in_flight.push_back(comm.AllToAll(large_in, large_out));
        break;
      default:
        in_flight.push_back(comm.Broadcast(in, step.root));
    }
    Apply(step, world);
    // Ranks wait at different moments.
    if (i + 1 < count && in_flight.size() < 1 + (random() + rank) % 10) continue;
    for (Work& work : in_flight) {
      if (const Status s = work.Wait(Soon()); !s.ok()) return Fail(self, StrCat(s.ToString(), " before ", i));
    }
    in_flight.clear();
    for (int a = 0; a < kArenas; ++a) {
      const auto& expected = world[rank][a];
      const auto differs = std::mismatch(expected.begin(), expected.end(), arenas[a]).first;
      if (differs != expected.end())
        return Fail(self, StrCat("element ", differs - expected.begin(), " of arena ", a, " after ", i));
    }
  }
  return 0;
}

}  // namespace ddprun
