#include "worker_sdk/comm/host/all_reduce_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddprun {
namespace {

Topology Nodes(const std::vector<int>& sizes) {
  Topology topology;
  int rank = 0;
  for (const int size : sizes) {
    topology.nodes.push_back({rank, rank + size});
    rank += size;
  }
  return topology;
}

// The table has at least one row for each rule; README.md has the measured times.
TEST(ChooseAllReduceTest, SelectsByTopologyAndSize) {
  using enum AllReduceAlgorithm;
  const struct {
    std::vector<int> nodes;
    size_t bytes;
    AllReduceAlgorithm expected;
    const char* why;
  } kCases[] = {
      {{1}, 0, kSharedMemory, "one rank"},
      {{8}, 4, kSharedMemory, "one node"},
      {{8}, 64 << 20, kSharedMemory, "one node, any size"},
      {{1, 1}, 4, kMeshOneShot, "two nodes: equally many messages, one exchange fewer"},
      {{4, 4}, 64 << 10, kMeshOneShot, "two aligned nodes: equally many bytes, one exchange fewer"},
      {{4, 4}, (64 << 10) + 4, kMeshTwoShot, "above kMaxOneShotBytes"},
      {{1, 1}, 256 << 10, kMeshTwoShot, "a whole chunk"},
      {{3, 3}, 64 << 10, kMeshOneShot, "two unaligned nodes: half a payload of extra traffic"},
      {{1, 1, 1}, 0, kMeshTwoShot, "a barrier has no pieces"},
      {{1, 1, 1}, 64, kMeshTwoShot, "one piece: 4 messages through node 0 instead of 6"},
      {{1, 1, 1}, 128, kMeshOneShot, "two pieces"},
      {{1, 1, 1}, 48 << 10, kMeshOneShot, "32 KiB of extra traffic"},
      {{1, 1, 1}, 64 << 10, kMeshTwoShot, "more than 32 KiB of extra traffic"},
      {{2, 3, 1}, 16 << 10, kMeshOneShot, "node 1 sends its two sums to two nodes"},
      {{2, 3, 1}, 17 << 10, kMeshTwoShot, "node 1 would have more than 32 KiB of extra traffic"},
      {std::vector<int>(8, 1), 128, kMeshTwoShot, "two pieces: 28 messages instead of 56"},
      {std::vector<int>(8, 1), 1 << 10, kMeshOneShot, "eight pieces: 112 messages instead of 56"},
      {std::vector<int>(8, 1), 6 << 10, kMeshOneShot, "at most 32 KiB of extra traffic"},
      {std::vector<int>(8, 1), 16 << 10, kMeshTwoShot, "each node would send the payload seven times"},
      {std::vector<int>(64, 1), 16 << 10, kMeshTwoShot, "more nodes, smaller payloads"},
      {std::vector<int>(64, 8), 64 << 10, kMeshTwoShot, "more nodes, smaller payloads"},
  };
  for (const auto& c : kCases) EXPECT_EQ(ChooseAllReduce(c.bytes, Nodes(c.nodes)), c.expected) << c.why;
}

TEST(ChooseAllReduceTest, ResultFitsTheTopology) {
  for (const auto& nodes : std::vector<std::vector<int>>{
           {1}, {8}, {1, 1}, {3, 1}, {2, 3, 1}, {7, 1, 4}, std::vector<int>(100, 8)}) {
    const Topology topology = Nodes(nodes);
    for (size_t bytes = 0; bytes <= 1 << 20; bytes = 4 + bytes * 3 / 2) {
      const AllReduceAlgorithm chosen = ChooseAllReduce(bytes, topology);
      EXPECT_TRUE(FitsTopology(chosen, topology)) << NameOf(chosen) << " for " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace ddprun
