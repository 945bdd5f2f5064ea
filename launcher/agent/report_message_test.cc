#include "launcher/agent/report_message.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(ReportMessageTest, EveryFieldReachesThePage) {
  proto::JobReport report;
  report.set_round(7);
  report.set_more_failures(3);
  report.add_lost_nodes("node3: its lease expired");
  report.set_outcome("restart 1 of 3");
  proto::JobReport::Group& group = *report.add_groups();
  group.set_count(2);
  group.add_ranks(4);
  group.add_ranks(5);
  proto::Failure& f = *group.mutable_first();
  f.set_rank(4);
  f.set_local_rank(1);
  f.set_host("node1");
  f.set_pid(77);
  f.set_signal(9);
  f.set_cause("rank 4 failed");
  f.set_uptime_ms(1500);
  f.set_step(0);
  f.set_exception("ValueError: bad batch");
  f.set_stderr_tail("a\nb");
  f.add_evidence("the kernel killed it");
  f.set_consequence(true);
  f.set_stuck(true);
  proto::Failure& second = *report.add_groups()->mutable_first();
  second.set_exit_code(3);

  const JobPage page = PageOf(report);
  EXPECT_EQ(page.round, Round(7));
  EXPECT_EQ(page.more_failures, 3);
  EXPECT_THAT(page.lost_nodes, ElementsAre("node3: its lease expired"));
  EXPECT_EQ(page.outcome, "restart 1 of 3");
  ASSERT_EQ(page.groups.size(), 2u);
  EXPECT_EQ(page.groups[0].count, 2);
  EXPECT_THAT(page.groups[0].ranks, ElementsAre(4, 5));
  const PageFailure& first = page.groups[0].first;
  EXPECT_EQ(first.rank, Rank(4));
  EXPECT_EQ(first.local_rank, LocalRank(1));
  EXPECT_EQ(first.host, "node1");
  EXPECT_EQ(first.pid, 77);
  EXPECT_EQ(first.signal, 9);
  EXPECT_EQ(first.cause, "rank 4 failed");
  EXPECT_EQ(first.uptime, milliseconds(1500));
  EXPECT_EQ(first.step, 0);
  EXPECT_EQ(first.exception, "ValueError: bad batch");
  EXPECT_EQ(first.stderr_tail, "a\nb");
  EXPECT_THAT(first.evidence, ElementsAre("the kernel killed it"));
  EXPECT_TRUE(first.consequence);
  EXPECT_TRUE(first.stuck);
  EXPECT_FALSE(page.groups[1].first.stuck);
  EXPECT_EQ(page.groups[1].first.exit_code, 3);
  EXPECT_EQ(page.groups[1].first.step, std::nullopt);
}

}  // namespace
}  // namespace ddprun
