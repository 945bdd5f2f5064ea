// One of three workers gets stuck, so that the others wait for it in an all-reduce. The job stands still, and within 12 s, three
// times the longest step but at least 10 s, the launcher says which rank is stuck, and where. Without LOGLEVEL=INFO.
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/testing/own_mounts.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StuckWorkersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { AdoptOrphans(); }

  // Runs the job until it stands still, and returns what is logged then.
  std::string Find(const std::string& how) {
    agent_ = StartAgent({"--nproc-per-node=3", "--shutdown-timeout=1"},
                        {TestFile("tests/fault/testing/stuck_worker"), how});
    const auto stuck = agent_->AwaitOut("stuck pid=");
    if (stuck.empty()) return "no worker is stuck: " + agent_->err();
    const TimePoint begun = agent_->found_at();
    pid_ = Field(stuck[0], "pid");
    const auto found = agent_->AwaitErr("has made no progress for ");
    if (found.empty()) return "nothing is found: " + agent_->err();
    EXPECT_LT(agent_->found_at() - begun, seconds(12));
    return found[0];
  }
  // Ends the job. Nothing may be left, although the stuck worker may not react to signals.
  void End() {
    const Traces traces = TracesOf(agent_->mark());
    agent_->Signal(SIGTERM);
    EXPECT_TRUE(agent_->Wait(seconds(30)).has_value());
    EXPECT_THAT(LeftOf(traces, agent_->mark()), IsEmpty());
  }

  std::unique_ptr<Process> agent_;
  pid_t pid_ = 0;  // of the stuck worker
};

TEST_F(StuckWorkersTest, EndlessLoop) {
  const std::string found = Find("--loop");
  EXPECT_THAT(found, HasSubstr("rank 1 on "));
  EXPECT_THAT(found,
              HasSubstr(" uses the processor, at step 199; 2 others wait in all-reduce, operation 200"));
  End();
}

TEST_F(StuckWorkersTest, SkippedCollective) {
  const std::string found = Find("--skip");
  EXPECT_THAT(found, HasSubstr("rank 1 on "));
  EXPECT_THAT(
      found,
      HasSubstr(" waits in receive, operation 0, at step 199; 2 others wait in all-reduce, operation 200"));
  End();
}

TEST_F(StuckWorkersTest, Deadlock) {
  const std::string found = Find("--deadlock");
  EXPECT_THAT(found, HasSubstr("rank 1 on "));
  EXPECT_THAT(found, HasSubstr(" is in futex"));
  EXPECT_THAT(found, HasSubstr(", at step 199; 2 others wait in all-reduce, operation 200"));
  End();
}

TEST_F(StuckWorkersTest, FileSystemThatDoesNotAnswer) {
  if (const absl::Status mounts = UseOwnMounts(); !mounts.ok()) GTEST_SKIP() << mounts;
  const auto file = HangingFile::Create(MakeTestDirectory());
  if (!file.ok()) GTEST_SKIP() << file.status();
  const std::string found = Find("--open=" + (*file)->path());
  EXPECT_THAT(found, HasSubstr("rank 1 on "));
  EXPECT_THAT(found, HasSubstr(" is in openat"));
  EXPECT_THAT(found, HasSubstr(", at step 199; 2 others wait in all-reduce, operation 200"));
  (*file)->Release();
  End();
}

}  // namespace
}  // namespace ddprun
