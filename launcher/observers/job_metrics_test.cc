#include "launcher/observers/job_metrics.h"

#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class JobMetricsTest : public testing::Test {
 protected:
  JobMetricsTest() {
    config_.num_local_workers = 2;
    config_.rules.max_restarts = 1;
    config_.role = "trainer";
    metrics_.emplace(
        config_, TimePoint(), [] { return 1795297344.25; },
        [this](const std::string& line) { text_ += line; });
  }

  static TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }
  void Round(int restart_count, int waiting_ms, int start_ms) {
    metrics_->OnWaiting(At(waiting_ms));
    metrics_->OnRound({.restart_count = restart_count}, At(start_ms));
    metrics_->OnWorkerStarted(LocalRank(0), 10, At(start_ms + 3));
    metrics_->OnWorkerStarted(LocalRank(1), 11, At(start_ms + 7));
  }
  // Returns the lines written since the last call, without their common prefix.
  std::string Written() {
    std::vector<std::string> lines = absl::StrSplit(std::exchange(text_, {}), '\n', absl::SkipEmpty());
    for (std::string& line : lines) {
      constexpr char kHead[] = "[1795297344.250000][torchelastic]: ";
      EXPECT_THAT(line, StartsWith(kHead));
      line = std::string(absl::StripPrefix(line, kHead));
    }
    return absl::StrJoin(lines, "\n");
  }

  LaunchConfig config_;
  std::string text_;
  std::optional<JobMetrics> metrics_;
};

// A worker fails in the first round, and the second round succeeds. The expected text is torchrun's output
// with the times of this test, and without the lines that torchrun repeats at every poll.
TEST_F(JobMetricsTest, MatchesTorchrunForAJobWithOneRestart) {
  Round(0, 100, 353);
  EXPECT_EQ(Written(),
            "SimpleElasticAgent._assign_worker_ranks.success=1\n"
            "SimpleElasticAgent._assign_worker_ranks.duration.ms=0\n"
            "SimpleElasticAgent._rendezvous.success=1\n"
            "SimpleElasticAgent._rendezvous.duration.ms=253\n"
            "LocalElasticAgent._start_workers.success=1\n"
            "LocalElasticAgent._start_workers.duration.ms=7\n"
            "SimpleElasticAgent._initialize_workers.success=1\n"
            "SimpleElasticAgent._initialize_workers.duration.ms=260\n"
            "workers.trainer.remaining_restarts=1\n"
            "workers.trainer.healthy=1");
  metrics_->OnFailure(At(1000));
  metrics_->OnStopping(At(1000));
  metrics_->OnWorkersGone({}, At(1250));
  EXPECT_EQ(Written(),
            "workers.trainer.remaining_restarts=1\n"
            "workers.trainer.failed=1\n"
            "LocalElasticAgent._stop_workers.success=1\n"
            "LocalElasticAgent._stop_workers.duration.ms=250");
  Round(1, 1250, 1300);
  metrics_->OnWorkersGone({}, At(2000));
  metrics_->OnEnd({.reason = EndReason::kSucceeded}, At(2100));
  EXPECT_EQ(Written(),
            "SimpleElasticAgent._assign_worker_ranks.success=1\n"
            "SimpleElasticAgent._assign_worker_ranks.duration.ms=0\n"
            "SimpleElasticAgent._rendezvous.success=1\n"
            "SimpleElasticAgent._rendezvous.duration.ms=50\n"
            "LocalElasticAgent._start_workers.success=1\n"
            "LocalElasticAgent._start_workers.duration.ms=7\n"
            "SimpleElasticAgent._initialize_workers.success=1\n"
            "SimpleElasticAgent._initialize_workers.duration.ms=57\n"
            "SimpleElasticAgent._restart_workers.success=1\n"
            "SimpleElasticAgent._restart_workers.duration.ms=307\n"
            "workers.trainer.remaining_restarts=0\n"
            "workers.trainer.healthy=1\n"
            "workers.trainer.remaining_restarts=0\n"
            "workers.trainer.succeeded=1\n"
            "workers.trainer.flakiness=50\n"
            "workers.trainer.run_total=1\n"
            "workers.trainer.run_success_with_retries=1\n"
            "workers.trainer.run_success_no_retries=0\n"
            "workers.trainer.run_failed_with_retries=0\n"
            "workers.trainer.run_failed_no_retries=0\n"
            "SimpleElasticAgent.run.success=1\n"
            "SimpleElasticAgent.run.duration.ms=2100");
}

TEST_F(JobMetricsTest, WritesTheMetricsOfAFailedJob) {
  Round(0, 0, 0);
  metrics_->OnFailure(At(5));
  metrics_->OnStopping(At(5));
  metrics_->OnWorkersGone({}, At(5));
  Written();
  metrics_->OnEnd({.reason = EndReason::kJobFailed}, At(194));
  EXPECT_EQ(Written(),
            "workers.trainer.flakiness=100\n"
            "workers.trainer.run_total=1\n"
            "workers.trainer.run_success_with_retries=0\n"
            "workers.trainer.run_success_no_retries=0\n"
            "workers.trainer.run_failed_with_retries=0\n"
            "workers.trainer.run_failed_no_retries=1\n"
            "SimpleElasticAgent.run.success=1\n"
            "SimpleElasticAgent.run.duration.ms=194");
}

TEST_F(JobMetricsTest, ASignalFailsOnlyTheAgent) {
  Round(0, 0, 0);
  Written();
  metrics_->OnStopping(At(10));
  metrics_->OnWorkersGone({"process 7"}, At(20));
  metrics_->OnEnd({.reason = EndReason::kTerminated}, At(30));
  EXPECT_EQ(Written(),
            "LocalElasticAgent._stop_workers.failure=1\n"
            "LocalElasticAgent._stop_workers.duration.ms=10\n"
            "SimpleElasticAgent.run.failure=1\n"
            "SimpleElasticAgent.run.duration.ms=30");
}

// Worker 1 survives the first round, and both survive the second one.
TEST_F(JobMetricsTest, WorkersThatSurviveAreHealthyInTheNextRound) {
  Round(0, 0, 0);
  metrics_->OnFailure(At(1000));
  metrics_->OnStopping(At(1000));
  metrics_->OnWorkersGone({}, At(1250));
  metrics_->OnWaiting(At(1250));
  metrics_->OnRound({.restart_count = 1}, At(1260));
  metrics_->OnWorkerKept(LocalRank(1), 11, At(1260));
  Written();
  metrics_->OnWorkerStarted(LocalRank(0), 12, At(1263));
  EXPECT_EQ(Written(),
            "LocalElasticAgent._start_workers.success=1\n"
            "LocalElasticAgent._start_workers.duration.ms=3\n"
            "SimpleElasticAgent._initialize_workers.success=1\n"
            "SimpleElasticAgent._initialize_workers.duration.ms=13\n"
            "SimpleElasticAgent._restart_workers.success=1\n"
            "SimpleElasticAgent._restart_workers.duration.ms=263\n"
            "workers.trainer.remaining_restarts=0\n"
            "workers.trainer.healthy=1");
  metrics_->OnStopping(At(2000));
  metrics_->OnWaiting(At(2010));
  EXPECT_EQ(Written(),
            "LocalElasticAgent._stop_workers.success=1\n"
            "LocalElasticAgent._stop_workers.duration.ms=10");
  metrics_->OnWorkersGone({}, At(2020));  // a worker has ended meanwhile
  EXPECT_EQ(Written(), "");
  metrics_->OnRound({.restart_count = 1}, At(2030));
  metrics_->OnWorkerKept(LocalRank(0), 12, At(2030));
  metrics_->OnWorkerKept(LocalRank(1), 11, At(2030));
  EXPECT_THAT(Written(), testing::EndsWith("workers.trainer.healthy=1"));
}

TEST_F(JobMetricsTest, ReportsAFailedStartOfWorkers) {
  metrics_->OnWaiting(At(0));
  metrics_->OnRound({}, At(1));
  metrics_->OnWorkerStarted(LocalRank(0), 10, At(2));
  metrics_->OnFailure(At(4));
  EXPECT_THAT(Written(), HasSubstr("LocalElasticAgent._start_workers.failure=1\n"
                                   "LocalElasticAgent._start_workers.duration.ms=3\n"));
}

}  // namespace
}  // namespace ddprun
