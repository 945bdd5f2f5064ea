// Tests of the cost of a round that ends, and of the report on the round.
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::SizeIs;

constexpr JobRules kTwo{.min_nodes = 2, .max_nodes = 2, .max_restarts = 3};

class RoundReportTest : public RoundMachineTest {
 protected:
  void SetUp() override { Start(kTwo); }
  // Starts round 0 with "a" and "b".
  void Start(JobRules policy) {
    Use(policy);
    Join("a");
    Join("b");
    ASSERT_EQ(machine_->state(), State::kRunning);
  }
  static Failure Rank0(std::string exception = "") {
    return {.rank = Rank(0), .exit = Exited{1}, .cause = "rank 0 failed", .exception = std::move(exception)};
  }
  static Failure Follows() {
    return {.rank = Rank(1), .origin = FailureOrigin::kFollowsAnother, .cause = "rank 1 failed"};
  }
  // Round `round` fails with `failure` on "a" and is drained.
  Words FailAndDrain(int round, const Failure& failure) {
    Failed("a", round, failure);
    Ready("a", round, 200, {failure});
    return Ready("b", round, 201);
  }
};

TEST_F(RoundReportTest, TheReportCombinesTheFailuresOfAllNodes) {
  Failed("b", 0, Follows());
  Ready("b", 0, 201, {Follows()});
  Ready("a", 0, 200, {Rank0("ValueError: bad batch")});
  const JobReport* report = Report();
  ASSERT_NE(report, nullptr);
  ASSERT_THAT(report->groups, SizeIs(2));
  EXPECT_EQ(report->groups[0].first.exception, "ValueError: bad batch");
  EXPECT_EQ(report->outcome, "restart 1 of 3");
  EXPECT_EQ(machine_->last_failure(), "rank 0 failed");
  EXPECT_EQ(machine_->restarts(), 1);
}

TEST_F(RoundReportTest, TheEarlyFailureOfANodeThatIsLostIsReported) {
  Failed("a", 0, Rank0());
  Killed("a");
  Ready("b", 0, 201, {Follows()});
  const JobReport* report = Report();
  ASSERT_NE(report, nullptr);
  ASSERT_THAT(report->groups, SizeIs(2));
  EXPECT_EQ(report->groups[0].first.cause, "rank 0 failed");
  EXPECT_THAT(report->lost_nodes, ElementsAre(HasSubstr("host-a (a) is lost: connection reset")));
  EXPECT_EQ(machine_->restarts(), 1);  // charged, because the failure did not follow from the loss
}

TEST_F(RoundReportTest, FailuresThatFollowedFromASilentLossAreFree) {
  // The workers of "b" fail before the lease of "a" expires.
  Failed("b", 0, Follows());
  EXPECT_THAT(Ready("b", 0, 201, {Follows()}), IsEmpty());
  WaitAlive(seconds(5), {"b"});
  EXPECT_EQ(machine_->state(), State::kGathering);
  EXPECT_EQ(machine_->restarts(), 0);
  EXPECT_THAT(ToText(machine_->WhatIsWaitedFor(now_)),
              HasSubstr("host-a (lost 0 ms ago: its lease expired)"));
}

TEST_F(RoundReportTest, ALossIsReportedAndAJoinIsNot) {
  Use({.min_nodes = 1, .max_nodes = 3, .first_last_call = seconds(0), .last_call = seconds(0)});
  Join("a");
  EXPECT_THAT(Join("b"), ElementsAre("a:stop r0"));
  EXPECT_THAT(Ready("a", 0, 200), ElementsAre("a:start r1 node0/2 rank0/2 n0 addr-a:200",
                                              "b:start r1 node1/2 rank1/2 n0 addr-a:200"));
  ASSERT_EQ(machine_->round(), Round(1));
  Killed("b");
  EXPECT_THAT(Ready("a", 1, 200), ElementsAre("a:report r1", "a:start r2 node0/1 rank0/1 n0 addr-a:200"));
  EXPECT_THAT(Report()->groups, IsEmpty());
  EXPECT_THAT(Report()->outcome, HasSubstr("no restart is spent"));
}

TEST_F(RoundReportTest, AJobClosedDuringADrainReportsItsFailures) {
  Failed("a", 0, Rank0());
  EXPECT_THAT(CloseJob(), ElementsAre("a:stop r0 for good", "b:stop r0 for good"));
  EXPECT_THAT(Ready("a", 0, 200), IsEmpty());
  EXPECT_THAT(Ready("b", 0, 201),
              ElementsAre("a:report r0", "b:report r0", "a:dismiss stopped", "b:dismiss stopped"));
  EXPECT_EQ(machine_->outcome(), Dismissal::kStopped);
  EXPECT_EQ(ToText(machine_->end()), "enough");
  EXPECT_EQ(machine_->restarts(), 0);
}

TEST_F(RoundReportTest, AFailureDuringADrainForAnotherReasonIsFree) {
  Killed("b");
  Failed("a", 0, Rank0());
  Ready("a", 0, 200, {Rank0()});
  EXPECT_EQ(machine_->restarts(), 0);
  EXPECT_THAT(Report()->groups, SizeIs(1));
  EXPECT_EQ(Report()->outcome, "no restart is spent: no failure of a worker ended the round");
}

TEST_F(RoundReportTest, ACrashBeforeMinUptimeEndsTheJob) {
  JobRules policy = kTwo;
  policy.min_uptime = seconds(10);
  Start(policy);
  Failure failure = Rank0();
  failure.uptime = seconds(1);
  EXPECT_THAT(FailAndDrain(0, failure),
              ElementsAre("a:report r0", "b:report r0", "a:dismiss failed", "b:dismiss failed"));
  EXPECT_THAT(DismissalText("a"), HasSubstr("rank 0 failed; it failed after 1 s, before its first step"));
}

TEST_F(RoundReportTest, ACrashWithoutProgressEndsTheJob) {
  JobRules policy = kTwo;
  policy.max_restarts = 10;
  policy.max_restarts_without_progress = 2;
  Start(policy);
  Failure failure = Rank0();
  failure.step = 57;
  FailAndDrain(0, failure);
  FailAndDrain(1, failure);
  EXPECT_EQ(machine_->restarts(), 2);
  Reports("b", 2, 58);  // progress
  FailAndDrain(2, failure);
  FailAndDrain(3, failure);
  EXPECT_EQ(machine_->state(), State::kRunning);
  FailAndDrain(4, failure);
  EXPECT_EQ(machine_->state(), State::kClosed);
  EXPECT_EQ(machine_->restarts(), 4);
  EXPECT_THAT(DismissalText("b"), HasSubstr("2 restarts in a row have not brought the job beyond step 58"));
}

}  // namespace
}  // namespace ddprun
