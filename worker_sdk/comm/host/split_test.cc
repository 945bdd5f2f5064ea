#include "worker_sdk/comm/host/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

const Topology kTwoNodes{.nodes = {{0, 3}, {3, 5}}};

TEST(SplitTest, RanksOfOneColorFormAGroupInTheOrderOfTheParent) {
  const std::vector<SplitChoice> choices = {{1}, {0}, {1}, {0}, {1}};
  const SplitGroup group = GroupOf(4, choices, kTwoNodes);
  EXPECT_THAT(group.members, ElementsAre(0, 2, 4));
  EXPECT_THAT(group.nodes, ElementsAre(RankRange{0, 2}, RankRange{2, 3}));
  EXPECT_EQ(group.rank, 2);
  EXPECT_EQ(group.node, 1);
}

TEST(SplitTest, KeysOrderTheRanks) {
  const std::vector<SplitChoice> choices = {{0, 4}, {0, 3}, {0, 2}, {0, 1}, {0, 0}};
  const SplitGroup group = GroupOf(1, choices, kTwoNodes);
  EXPECT_THAT(group.members, ElementsAre(4, 3, 2, 1, 0));
  EXPECT_THAT(group.nodes, ElementsAre(RankRange{0, 2}, RankRange{2, 5}));
  EXPECT_EQ(group.rank, 3);
  EXPECT_EQ(group.node, 1);
}

TEST(SplitTest, EqualKeysKeepTheOrderOfTheParent) {
  const std::vector<SplitChoice> choices = {{0, 1}, {0, 0}, {0, 1}, {0, 0}, {-1, 0}};
  EXPECT_THAT(GroupOf(0, choices, kTwoNodes).members, ElementsAre(1, 3, 0, 2));
}

TEST(SplitTest, AnOrderThatInterleavesNodesHasAnEntryForEachRunOfRanks) {
  const std::vector<SplitChoice> choices = {{0, 0}, {0, 2}, {0, 4}, {0, 1}, {0, 3}};
  const SplitGroup group = GroupOf(2, choices, kTwoNodes);
  EXPECT_THAT(group.members, ElementsAre(0, 3, 1, 4, 2));
  EXPECT_THAT(group.nodes, ElementsAre(RankRange{0, 1}, RankRange{1, 2}, RankRange{2, 3}, RankRange{3, 4},
                                       RankRange{4, 5}));
  EXPECT_EQ(group.node, 4);
}

TEST(SplitTest, AGroupOfOne) {
  const std::vector<SplitChoice> choices = {{0}, {1}, {2}, {3}, {4}};
  const SplitGroup group = GroupOf(3, choices, kTwoNodes);
  EXPECT_THAT(group.members, ElementsAre(3));
  EXPECT_THAT(group.nodes, ElementsAre(RankRange{0, 1}));
  EXPECT_EQ(group.rank, 0);
}

}  // namespace
}  // namespace ddprun
