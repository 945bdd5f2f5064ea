#include "rendezvous/core/rank_assignment.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> GroupRanks(const RankPlan& plan) {
  std::vector<int64_t> ranks;
  for (const RankSpan& s : plan.spans) ranks.push_back(s.group_rank.value());
  return ranks;
}
std::vector<int64_t> FirstRanks(const RankPlan& plan) {
  std::vector<int64_t> ranks;
  for (const RankSpan& s : plan.spans) ranks.push_back(s.first_rank.value());
  return ranks;
}

TEST(RankAssignmentTest, TheFirstRoundIsOrderedByArrival) {
  EXPECT_THAT(GroupRanks(AssignRanks({{.arrival = 7}, {.arrival = 3}, {.arrival = 5}})),
              ElementsAre(2, 0, 1));
}

TEST(RankAssignmentTest, RequestedRanksDetermineTheOrderIfAllNodesHaveOne) {
  EXPECT_THAT(GroupRanks(AssignRanks({{.requested = 4, .arrival = 1}, {.requested = 0, .arrival = 2}})),
              ElementsAre(1, 0));
}

TEST(RankAssignmentTest, RequestedRanksOverrideThePreviousOrderIfAllNodesHaveOne) {
  EXPECT_THAT(GroupRanks(AssignRanks({{.previous = GroupRank(0), .requested = 2, .arrival = 1},
                                      {.previous = GroupRank(1), .requested = 3, .arrival = 2},
                                      {.requested = 0, .arrival = 9}})),
              ElementsAre(1, 2, 0));
}

TEST(RankAssignmentTest, SurvivorsKeepTheirOrderAndNewcomersFollow) {
  EXPECT_THAT(GroupRanks(AssignRanks({{.previous = GroupRank(3), .arrival = 1},
                                      {.arrival = 2},
                                      {.previous = GroupRank(1), .arrival = 5},
                                      {.requested = 0, .arrival = 8}})),
              ElementsAre(1, 3, 0, 2));
}

TEST(RankAssignmentTest, RanksAreConsecutiveWithUnequalWorkerCounts) {
  const RankPlan plan =
      AssignRanks({{.arrival = 1, .nproc = 2}, {.arrival = 2, .nproc = 3}, {.arrival = 3, .nproc = 1}});
  EXPECT_THAT(FirstRanks(plan), ElementsAre(0, 2, 5));
  EXPECT_EQ(plan.world_size, 6);
}

TEST(RankAssignmentTest, RoleRanksAreCountedWithinEachRole) {
  const RankPlan plan = AssignRanks({{.arrival = 1, .nproc = 2, .role = "a"},
                                     {.arrival = 2, .nproc = 3, .role = "b"},
                                     {.arrival = 3, .nproc = 4, .role = "a"}});
  EXPECT_EQ(plan.spans[2].first_role_rank, 2);
  EXPECT_EQ(plan.spans[0].role_world_size, 6);
  EXPECT_EQ(plan.spans[1].first_role_rank, 0);
  EXPECT_EQ(plan.spans[1].role_world_size, 3);
}

}  // namespace
}  // namespace ddprun
