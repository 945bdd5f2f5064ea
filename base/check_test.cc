#include "base/check.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(CheckDeathTest, PrintsConditionAndState) {
  const int members = 3;
  EXPECT_DEATH(DDPRUN_CHECK(members == 2, "node n" << 1 << " of " << members),
               "check_test.cc:.*: broken invariant members == 2: node n1 of 3");
}

TEST(CheckTest, DoesNotEvaluateStateIfConditionHolds) {
  int evaluated = 0;
  DDPRUN_CHECK(true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

}  // namespace
}  // namespace ddprun
