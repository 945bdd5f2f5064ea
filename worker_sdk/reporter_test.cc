#include "worker_sdk/reporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/worker.pb.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

WorkerEnv EnvOf(const FakeAgent& agent) {
  WorkerEnv env;
  env.rank = Rank(5);
  env.local_rank = LocalRank(1);
  env.round = Round(7);
  env.agent_socket = agent.name();
  return env;
}

TEST(ReporterTest, ReportsIdentityStepAndPhase) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  reporter.Report(12, WorkerPhase::kSnapshotting, "half done");
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->round(), 7);
  EXPECT_EQ(report->rank(), 5);
  EXPECT_EQ(report->local_rank(), 1);
  EXPECT_EQ(report->pid(), getpid());
  EXPECT_EQ(report->step(), 12);
  EXPECT_EQ(report->phase(), proto::WORKER_PHASE_SNAPSHOTTING);
  EXPECT_EQ(report->message(), "half done");
  EXPECT_EQ(reporter.num_sent(), 1);
}

TEST(ReporterTest, SendsNothingWithoutAnAgent) {
  Reporter reporter{WorkerEnv()};
  reporter.Report(1, WorkerPhase::kTraining);
  EXPECT_EQ(reporter.num_sent(), 0);
}

TEST(ReporterTest, ConnectsToAnAgentThatListensLater) {
  FakeAgent agent;
  Reporter reporter(EnvOf(agent));
  reporter.Report(1, WorkerPhase::kTraining);  // refused: the agent is not listening yet
  EXPECT_EQ(reporter.num_sent(), 0);
  agent.Listen();
  reporter.Report(2, WorkerPhase::kTraining);
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), 2);
}

TEST(ReporterTest, SurvivesTheAgentsExit) {
  std::optional<FakeAgent> agent(std::in_place);
  agent->Listen();
  Reporter reporter(EnvOf(*agent));
  reporter.Report(1, WorkerPhase::kTraining);
  ASSERT_TRUE(agent->Next().has_value());
  agent.reset();
  reporter.Report(2, WorkerPhase::kTraining);  // no SIGPIPE
  reporter.Report(3, WorkerPhase::kTraining);
  EXPECT_EQ(reporter.num_sent(), 1);
}

TEST(ReporterTest, DropsReportsInsteadOfWaitingForASlowAgent) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  constexpr int kReports = 20000;
  for (int i = 0; i < kReports; ++i) reporter.Report(i, WorkerPhase::kTraining);
  EXPECT_GT(reporter.num_sent(), 0);
  EXPECT_LT(reporter.num_sent(), kReports);
  while (agent.Next().has_value()) {
  }
  reporter.Report(kReports, WorkerPhase::kTraining);  // succeeds now that the socket has room
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), kReports);
}

TEST(ReporterTest, TruncatesLongMessagesBetweenCharacters) {
  FakeAgent agent;
  agent.Listen();
  Reporter reporter(EnvOf(agent));
  reporter.Report(1, WorkerPhase::kTraining, absl::StrCat(std::string(999, 'x'), "\xc3\xa9 and more"));
  const std::optional<proto::WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->message(), std::string(999, 'x'));
}

proto::AgentRequest SnapshotRequest(int64_t round, bool take = true) {
  proto::AgentRequest request;
  request.set_round(round);
  request.set_take_snapshot(take);
  return request;
}

// A worker of round 7 that has reported once.
class ReporterRequestTest : public testing::Test {
 protected:
  void SetUp() override {
    agent_.Listen();
    ASSERT_EQ(ReportAt(1).step(), 1);
  }
  // Reports `step` and returns what the agent received.
  proto::WorkerReport ReportAt(int64_t step) {
    reporter_.Report(step, WorkerPhase::kTraining);
    return agent_.Next().value_or(proto::WorkerReport());
  }
  FakeAgent agent_;
  Reporter reporter_{EnvOf(agent_)};
};

TEST_F(ReporterRequestTest, ARequestIsPendingUntilTheSnapshotIsReported) {
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));
  EXPECT_FALSE(ReportAt(2).has_snapshot_step());
  EXPECT_TRUE(reporter_.snapshot_requested());
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested());

  reporter_.ReportSnapshot(3);
  EXPECT_FALSE(reporter_.snapshot_requested());
  const std::optional<proto::WorkerReport> report = agent_.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step(), 3);
  EXPECT_EQ(report->snapshot_step(), 3);
  EXPECT_EQ(report->phase(), proto::WORKER_PHASE_SNAPSHOTTING);
}

// Any report may be lost, so each one carries the newest snapshot.
TEST_F(ReporterRequestTest, LaterReportsRepeatTheNewestSnapshot) {
  reporter_.ReportSnapshot(3);
  EXPECT_EQ(agent_.Next()->snapshot_step(), 3);
  EXPECT_EQ(ReportAt(4).snapshot_step(), 3);
  reporter_.ReportSnapshot(5);
  agent_.Next();
  EXPECT_EQ(ReportAt(6).snapshot_step(), 5);
}

TEST_F(ReporterRequestTest, ASnapshotAnswersRequestsReceivedWhileItWasWritten) {
  agent_.Ask(SnapshotRequest(7));
  ReportAt(2);
  agent_.Ask(SnapshotRequest(7));
  reporter_.ReportSnapshot(2);
  ReportAt(3);
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));  // not answered by the earlier ReportSnapshot
  ReportAt(4);
  EXPECT_TRUE(reporter_.snapshot_requested());
}

TEST_F(ReporterRequestTest, TheNewestRequestWins) {
  agent_.Ask(SnapshotRequest(7));
  agent_.Ask(SnapshotRequest(7, /*take=*/false));
  ReportAt(2);
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7, /*take=*/false));
  agent_.Ask(SnapshotRequest(7));
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested());
}

TEST_F(ReporterRequestTest, IgnoresRequestsOfOtherRoundsAndMalformedOnes) {
  agent_.Ask(SnapshotRequest(6));
  agent_.Ask(SnapshotRequest(8));
  agent_.Say("\xff\xff\xff garbage");
  agent_.Say(SnapshotRequest(7).SerializeAsString() + std::string(5000, '\0'));
  ReportAt(2);
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested()) << "still receives requests";
}

TEST(ReporterTest, AnEmptyRequestIsNotTakenForTheAgentsExit) {
  FakeAgent agent;
  agent.Listen();
  WorkerEnv env = EnvOf(agent);
  env.round = Round(0);
  Reporter reporter(env);
  reporter.Report(1, WorkerPhase::kTraining);
  ASSERT_TRUE(agent.Next());
  agent.Ask(SnapshotRequest(0));
  agent.Ask(SnapshotRequest(0, /*take=*/false));  // serializes to zero bytes
  reporter.Report(2, WorkerPhase::kTraining);
  EXPECT_FALSE(reporter.snapshot_requested());
  agent.Ask(SnapshotRequest(0));
  reporter.Report(3, WorkerPhase::kTraining);
  EXPECT_TRUE(reporter.snapshot_requested());
  EXPECT_EQ(reporter.num_sent(), 3);
}

}  // namespace
}  // namespace ddprun
