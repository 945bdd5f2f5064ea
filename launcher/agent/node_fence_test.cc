#include "launcher/agent/node_fence.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NodeFenceTest : public ::testing::Test {
 protected:
  static TimePoint At(int ms) { return TimePoint(seconds(100) + milliseconds(ms)); }
  // A time of the boot clock, which differs from the clock of At().
  BootTime Boot(int ms) const { return start_ + std::chrono::hours(1) + milliseconds(ms); }
  // Returns the deadlines that were set since the last call.
  std::vector<std::optional<BootTime>> Orders() { return std::exchange(orders_, {}); }

  std::vector<std::optional<BootTime>> orders_;
  const BootTime start_ = BootClock::now();
  NodeFence fence_{[this](std::optional<BootTime> deadline) { orders_.push_back(deadline); }};
};

TEST_F(NodeFenceTest, TheJoinCountsAsTheFirstHeartbeat) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(4500)));
}

TEST_F(NodeFenceTest, AnswersRenewTheLeaseFromTheSendTime) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.WorkersStart();
  Orders();
  fence_.BeforeSign(At(0), Boot(0));
  fence_.BeforeSign(At(1000), Boot(1000));
  fence_.BeforeSign(At(2000), Boot(2000));
  EXPECT_THAT(Orders(), IsEmpty());  // Unanswered heartbeats do not renew the deadline.
  fence_.Answered(At(1001));
  EXPECT_THAT(Orders(), ElementsAre(Boot(1000 + 4500)));
  fence_.Answered(At(2000));
  EXPECT_THAT(Orders(), ElementsAre(Boot(2000 + 4500)));
}

TEST_F(NodeFenceTest, SuspensionCountsAgainstTheLease) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.WorkersStart();
  Orders();
  fence_.BeforeSign(At(0), Boot(0));
  // Only the boot clock advances while the machine is suspended for ten minutes. Then the answer arrives.
  fence_.BeforeSign(At(1), Boot(600'001));
  fence_.Answered(At(0));
  EXPECT_THAT(Orders(), ElementsAre(Boot(4500)));
}

TEST_F(NodeFenceTest, EndsWithTheLeadOfTheCoordinator) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.LeaseFrom(milliseconds(1250), milliseconds(3900));
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(3900)));
  fence_.BeforeSign(At(0), Boot(1000));
  fence_.BeforeSign(At(1000), Boot(2000));
  // The lead was not renewed between the two answers, which say so.
  fence_.Answered(At(0), milliseconds(3000));
  EXPECT_THAT(Orders(), ElementsAre(Boot(4000)));
  fence_.Answered(At(1000), milliseconds(1990));
  EXPECT_THAT(Orders(), ElementsAre(Boot(4000)));
  // The lease of the node ends before the lead.
  fence_.BeforeSign(At(2000), Boot(3000));
  fence_.Answered(At(2000), seconds(60));
  EXPECT_THAT(Orders(), ElementsAre(Boot(7500)));
}

TEST_F(NodeFenceTest, ALeadThatIsOverFencesAtOnce) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.LeaseFrom(milliseconds(1250), Duration::zero());
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(0)));
  // The next coordinator has a lead of its own.
  fence_.Joined(seconds(5), Boot(6000));
  fence_.LeaseFrom(milliseconds(1250), seconds(4));
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(10'000)));
}

TEST_F(NodeFenceTest, IsArmedOnlyWhileThereAreWorkers) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.BeforeSign(At(0), Boot(0));
  fence_.Answered(At(0));
  EXPECT_THAT(Orders(), IsEmpty());
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(4500)));
  fence_.WorkersGone();
  EXPECT_THAT(Orders(), ElementsAre(std::nullopt));
  fence_.WorkersGone();
  EXPECT_THAT(Orders(), IsEmpty());
}

TEST_F(NodeFenceTest, TheShorterLeaseApplies) {
  fence_.Joined(seconds(5), Boot(0));
  fence_.LeaseFrom(milliseconds(2500));
  fence_.LeaseFrom(Duration::zero());
  fence_.BeforeSign(At(0), Boot(0));
  fence_.Answered(At(0));
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(Boot(4500)));
  fence_.WorkersGone();
  fence_.LeaseFrom(milliseconds(250));
  fence_.WorkersStart();
  EXPECT_THAT(Orders(), ElementsAre(std::nullopt, Boot(900)));
}

}  // namespace
}  // namespace ddprun
