#include "rendezvous/core/failure_aggregator.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr TimePoint kNow{seconds(1000)};

Failure Exit(int64_t rank, std::string exception, Duration age = {}) {
  return {.rank = Rank(rank),
          .exit = Exited{1},
          .failed_at = kNow - age,
          .cause = absl::StrCat("rank ", rank, " failed"),
          .exception = std::move(exception),
          .stderr_tail = "traceback"};
}

TEST(JobReportTest, IsEmptyWithoutFailures) {
  const FailureAggregator losses;
  EXPECT_TRUE(losses.empty());
  EXPECT_THAT(losses.Report(Round(3)).groups, SizeIs(0));
}

TEST(JobReportTest, EqualFailuresAreGrouped) {
  FailureAggregator losses;
  losses.Told(NodeId("b"), {Exit(2, "KeyError: 17"), Exit(3, "KeyError: 18")});
  losses.Told(NodeId("a"), {Exit(1, "KeyError: 5", milliseconds(9)), Exit(0, "ValueError: x")});
  const JobReport report = losses.Report(Round(7));
  EXPECT_EQ(report.round, Round(7));
  ASSERT_THAT(report.groups, SizeIs(2));
  EXPECT_EQ(report.groups[0].first.exception, "KeyError: 5");  // the earliest
  EXPECT_EQ(report.groups[0].first.failed_at, kNow - milliseconds(9));
  EXPECT_EQ(report.groups[0].count, 3);
  EXPECT_THAT(report.groups[0].ranks, ElementsAre(Rank(1), Rank(2), Rank(3)));
  EXPECT_EQ(report.groups[1].first.exception, "ValueError: x");
  EXPECT_EQ(report.more_failures, 0);
}

TEST(JobReportTest, ExitCodesSignalsAndOriginsFormSeparateGroups) {
  FailureAggregator losses;
  Failure other_code = Exit(1, "");
  other_code.exit = Exited{2};
  Failure killed = Exit(2, "");
  killed.exit = Signaled{9, false};
  Failure follows = Exit(3, "");
  follows.origin = FailureOrigin::kFollowsAnother;
  losses.Told(NodeId("a"), {Exit(0, ""), other_code, killed, follows});
  EXPECT_THAT(losses.Report(Round(0)).groups, SizeIs(4));
}

TEST(JobReportTest, FirstCauseIsTheEarliestFailureThatFollowsFromNoOther) {
  FailureAggregator losses;
  Failure follows = Exit(0, "connection closed by peer", milliseconds(50));
  follows.origin = FailureOrigin::kFollowsAnother;
  losses.Told(NodeId("a"), {follows});
  // The order of the calls does not matter.
  losses.Told(NodeId("b"), {Exit(4, "late", milliseconds(10))});
  losses.Told(NodeId("c"), {Exit(5, "early", milliseconds(20))});
  const JobReport report = losses.Report(Round(0));
  ASSERT_THAT(report.groups, SizeIs(3));
  EXPECT_EQ(report.groups[0].first.exception, "early");
  EXPECT_EQ(report.groups[1].first.exception, "late");
  EXPECT_EQ(report.groups[2].first.origin, FailureOrigin::kFollowsAnother);
}

TEST(JobReportTest, DetailsReplaceTheEarlyFailureOfANode) {
  FailureAggregator losses;
  losses.ToldAtOnce(NodeId("a"), Exit(0, ""));
  losses.ToldAtOnce(NodeId("b"), Exit(4, "", milliseconds(5)));
  EXPECT_FALSE(losses.empty());
  losses.Told(NodeId("a"), {Exit(0, "details"), Exit(1, "details")});
  losses.Told(NodeId("b"), {});  // no details
  const JobReport report = losses.Report(Round(0));
  ASSERT_THAT(report.groups, SizeIs(2));
  EXPECT_EQ(report.groups[0].first.rank, Rank(4));
  EXPECT_EQ(report.groups[1].count, 2);
}

TEST(JobReportTest, IsBoundedForManyFailures) {
  FailureAggregator losses;
  for (int i = 0; i < 1000; ++i) {
    // 26 equally frequent kinds of failures. Kinds with later letters fail earlier.
    std::vector<Failure> failures;
    for (char kind = 'a'; kind <= 'z'; ++kind) {
      failures.push_back(Exit(i, std::string(5, kind), milliseconds(100 + kind)));
    }
    losses.Told(NodeId(absl::StrCat("n", i)), std::move(failures));
    losses.Lost(absl::StrCat("node ", i, " is lost"));
  }
  const JobReport report = losses.Report(Round(0));
  ASSERT_THAT(report.groups, SizeIs(JobReport::kMaxGroups));
  EXPECT_EQ(report.groups[0].first.exception, "zzzzz");
  EXPECT_THAT(report.groups[0].ranks, SizeIs(JobReport::kMaxRanks));
  EXPECT_EQ(report.groups[0].ranks.back(), Rank(JobReport::kMaxRanks - 1));
  int counted = report.more_failures;
  for (size_t i = 0; i < report.groups.size(); ++i) {
    counted += report.groups[i].count;
    EXPECT_EQ(report.groups[i].first.stderr_tail.empty(), i >= JobReport::kMaxTails) << i;
  }
  EXPECT_EQ(counted, 26'000);
  ASSERT_THAT(report.lost_nodes, SizeIs(JobReport::kMaxLostNodes + 1));
  EXPECT_EQ(report.lost_nodes.back(), "and 984 more nodes");
}

TEST(JobReportTest, SummaryIsOneLine) {
  FailureAggregator losses;
  losses.Told(NodeId("a"), {Exit(0, "ValueError: x"), Exit(1, "ValueError: x")});
  losses.Lost("node h (h/1) is lost: it hung up");
  JobReport report = losses.Report(Round(2));
  report.outcome = "restart 1 of 3";
  EXPECT_EQ(Summary(report),
            "round 2: rank 0 failed: ValueError: x; 2 failures in all; node h (h/1) is lost: it hung up; "
            "restart 1 of 3");
}

}  // namespace
}  // namespace ddprun
