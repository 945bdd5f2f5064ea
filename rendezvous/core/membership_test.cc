#include "rendezvous/core/membership.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

const TimePoint kLater{seconds(5)};

TEST(MembershipDeathTest, AddingAMemberTwiceAborts) {
  Membership membership;
  membership.Add({.id = NodeId("a")}, kLater, kLater);
  EXPECT_DEATH(membership.Add({.id = NodeId("a")}, kLater, kLater), "node a is a member already");
}

TEST(MembershipDeathTest, ChangingANonmemberAborts) {
  Membership membership;
  membership.Add({.id = NodeId("a")}, kLater, kLater);
  EXPECT_DEATH(membership.Remove(NodeId("b")), "node b is not among the 1 members");
  EXPECT_DEATH(membership.SetPhase(NodeId("b"), Phase::kRunning), "node b is not among the 1 members");
}

}  // namespace
}  // namespace ddprun
