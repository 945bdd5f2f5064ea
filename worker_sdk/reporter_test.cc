#include "worker_sdk/reporter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>

#include "worker_sdk/agent_channel.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

WorkerEnv Env() {
  WorkerEnv env;
  env.rank = Rank(5);
  env.local_rank = LocalRank(1);
  env.round = Round(7);
  return env;
}

// A worker's reporter, with what it borrows.
struct OwnReporter {
  explicit OwnReporter(const std::string& socket_name) : channel(socket_name) {}
  WorkerEnv env = Env();
  AgentChannel channel;
  Reporter reporter{env, &channel};
};

TEST(ReporterTest, ReportsIdentityStepAndPhase) {
  FakeAgent agent;
  agent.Listen();
  OwnReporter own(agent.name());
  Reporter& reporter = own.reporter;
  reporter.Report(12, WorkerPhase::kSnapshotting, "half done");
  const std::optional<WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->round, Round(7));
  EXPECT_EQ(report->rank, Rank(5));
  EXPECT_EQ(report->local_rank, LocalRank(1));
  EXPECT_EQ(report->pid, getpid());
  EXPECT_EQ(report->step, 12);
  EXPECT_EQ(report->phase, WorkerPhase::kSnapshotting);
  EXPECT_EQ(report->message, "half done");
  EXPECT_EQ(reporter.num_sent(), 1);
}

TEST(ReporterTest, SendsNothingWithoutAnAgent) {
  OwnReporter own("");
  Reporter& reporter = own.reporter;
  reporter.Report(1, WorkerPhase::kTraining);
  EXPECT_EQ(reporter.num_sent(), 0);
}

TEST(ReporterTest, ConnectsToAnAgentThatListensLater) {
  FakeAgent agent;
  OwnReporter own(agent.name());
  Reporter& reporter = own.reporter;
  reporter.Report(1, WorkerPhase::kTraining);  // refused: the agent is not listening yet
  EXPECT_EQ(reporter.num_sent(), 0);
  agent.Listen();
  reporter.Report(2, WorkerPhase::kTraining);
  const std::optional<WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step, 2);
}

TEST(ReporterTest, SurvivesTheAgentsExit) {
  std::optional<FakeAgent> agent(std::in_place);
  agent->Listen();
  OwnReporter own(agent->name());
  Reporter& reporter = own.reporter;
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
  OwnReporter own(agent.name());
  Reporter& reporter = own.reporter;
  constexpr int kReports = 20000;
  for (int i = 0; i < kReports; ++i) reporter.Report(i, WorkerPhase::kTraining);
  EXPECT_GT(reporter.num_sent(), 0);
  EXPECT_LT(reporter.num_sent(), kReports);
  while (agent.Next().has_value()) {
  }
  reporter.Report(kReports, WorkerPhase::kTraining);  // succeeds now that the socket has room
  const std::optional<WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step, kReports);
}

TEST(ReporterTest, TruncatesLongMessagesBetweenCharacters) {
  FakeAgent agent;
  agent.Listen();
  OwnReporter own(agent.name());
  Reporter& reporter = own.reporter;
  reporter.Report(1, WorkerPhase::kTraining, StrCat(std::string(999, 'x'), "\xc3\xa9 and more"));
  const std::optional<WorkerReport> report = agent.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->message, std::string(999, 'x'));
}

AgentRequest SnapshotRequest(int64_t round, bool take = true) {
  return {.round = Round(round), .take_snapshot = take};
}

// A worker of round 7 that has reported once.
class ReporterRequestTest : public testing::Test {
 protected:
  void SetUp() override {
    agent_.Listen();
    ASSERT_EQ(ReportAt(1).step, 1);
  }
  // Reports `step` and returns what the agent received.
  WorkerReport ReportAt(int64_t step) {
    reporter_.Report(step, WorkerPhase::kTraining);
    return agent_.Next().value_or(WorkerReport{});
  }
  FakeAgent agent_;
  OwnReporter own_{agent_.name()};
  Reporter& reporter_ = own_.reporter;
};

TEST_F(ReporterRequestTest, ARequestIsPendingUntilTheSnapshotIsReported) {
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));
  EXPECT_FALSE(ReportAt(2).snapshot_step);
  EXPECT_TRUE(reporter_.snapshot_requested());
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested());

  reporter_.ReportSnapshot(3);
  EXPECT_FALSE(reporter_.snapshot_requested());
  const std::optional<WorkerReport> report = agent_.Next();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->step, 3);
  EXPECT_EQ(report->snapshot_step, 3);
  EXPECT_EQ(report->phase, WorkerPhase::kTraining);
}

// Any report may be lost, so each report contains the step of the newest snapshot.
TEST_F(ReporterRequestTest, LaterReportsRepeatTheNewestSnapshot) {
  reporter_.ReportSnapshot(3);
  EXPECT_EQ(agent_.Next()->snapshot_step, 3);
  EXPECT_EQ(ReportAt(4).snapshot_step, 3);
  reporter_.ReportSnapshot(5);
  agent_.Next();
  EXPECT_EQ(ReportAt(6).snapshot_step, 5);
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

TEST_F(ReporterRequestTest, IgnoresMalformedRequestsAndRequestsForOtherRounds) {
  agent_.Ask(SnapshotRequest(6));
  agent_.Ask(SnapshotRequest(8));
  agent_.Say("\xff\xff\xff garbage");
  agent_.Say(Encode(SnapshotRequest(7)) + std::string(5000, '\0'));
  ReportAt(2);
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested()) << "valid requests are still received";
}

TEST_F(ReporterRequestTest, ARoundForgetsTheRequestsAndSnapshotsOfTheOneBefore) {
  reporter_.ReportSnapshot(2);
  EXPECT_EQ(agent_.Next()->snapshot_step, 2);
  agent_.Ask(SnapshotRequest(7));
  ReportAt(3);
  own_.env.round = Round(8);
  own_.env.rank = Rank(4);
  reporter_.BeginRound();
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(7));
  const WorkerReport report = ReportAt(3);
  EXPECT_EQ(report.round, Round(8));
  EXPECT_EQ(report.rank, Rank(4));
  EXPECT_FALSE(report.snapshot_step);
  EXPECT_FALSE(reporter_.snapshot_requested());
  agent_.Ask(SnapshotRequest(8));
  ReportAt(4);
  EXPECT_TRUE(reporter_.snapshot_requested());
}

TEST_F(ReporterRequestTest, AStopHoldsUntilTheEndOfTheRound) {
  const WorkerStop stop{TimePoint(seconds(5)), "because"};
  agent_.Ask({.round = Round(7), .take_snapshot = true, .stop = stop});
  EXPECT_EQ(reporter_.stop(), std::nullopt);
  ReportAt(2);
  EXPECT_EQ(reporter_.stop(), stop);
  EXPECT_TRUE(reporter_.snapshot_requested());
  reporter_.ReportSnapshot(2);
  EXPECT_EQ(agent_.Next()->snapshot_step, 2);
  EXPECT_EQ(reporter_.stop(), stop);
  own_.env.round = Round(8);
  reporter_.BeginRound();
  EXPECT_EQ(reporter_.stop(), std::nullopt);
}

// The report of the last snapshot is not dropped like other reports.
TEST_F(ReporterRequestTest, TheLastSnapshotIsReportedAlthoughTheSocketIsFull) {
  agent_.Ask({.round = Round(7), .stop = WorkerStop{TimePoint(seconds(5)), "because"}});
  ReportAt(2);
  int64_t num_sent = -1;
  while (num_sent != reporter_.num_sent()) {
    num_sent = reporter_.num_sent();
    reporter_.Report(3, WorkerPhase::kTraining);
  }
  std::thread agent([&] {
    EXPECT_TRUE(
        agent_.Await([](const WorkerReport& report) { return report.snapshot_step == 4; }).has_value());
  });
  reporter_.ReportSnapshot(4);
  agent.join();
  EXPECT_EQ(reporter_.num_sent(), num_sent + 1);
}

TEST_F(ReporterRequestTest, AnotherThreadMayReceive) {
  reporter_.ReceiveElsewhere();
  agent_.Ask(SnapshotRequest(7));
  ReportAt(2);
  EXPECT_FALSE(reporter_.snapshot_requested()) << "the request is for the other thread";
  reporter_.Deliver(SnapshotRequest(7, /*take=*/false));
  reporter_.Deliver(SnapshotRequest(7));
  EXPECT_FALSE(reporter_.snapshot_requested()) << "changes in Report only";
  ReportAt(3);
  EXPECT_TRUE(reporter_.snapshot_requested());
  reporter_.Deliver(SnapshotRequest(7));
  reporter_.ReportSnapshot(3);
  EXPECT_FALSE(reporter_.snapshot_requested());
}

// The agent of a later release that has changed the protocol.
TEST_F(ReporterRequestTest, StopsReportingToAnAgentOfAnotherVersion) {
  std::string notice = EncodeVersionNotice();
  notice[4] = kWorkerMessageVersion + 1;
  agent_.Say(notice);
  agent_.Say(notice);
  testing::internal::CaptureStderr();
  ReportAt(2);
  ReportAt(3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "libddprun: the agent has version 2 of the protocol between worker and agent, this library has "
            "version 1: no steps are reported; use the libddprun of the ddprun that starts this job\n");
  EXPECT_EQ(reporter_.num_sent(), 2);
}

}  // namespace
}  // namespace ddprun
