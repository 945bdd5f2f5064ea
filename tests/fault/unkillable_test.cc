// Tests a process that SIGKILL does not end, because it waits for a file system that does not respond.
#include <signal.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/testing/own_mounts.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class UnkillableTest : public TrainingTest {};

// The error names the process and its state. The node of the process leaves the job, and the other node
// continues.
TEST_F(UnkillableTest, TheProcessIsReportedAndItsNodeLeavesTheJob) {
  if (const absl::Status mounts = UseOwnMounts(); !mounts.ok()) GTEST_SKIP() << mounts;
  const auto file = HangingFile::Create(MakeTestDirectory());
  if (!file.ok()) GTEST_SKIP() << file.status();
  StartTraining({.shell = "[ $RANK.$DDPRUN_ROUND = 1.0 ] && (setsid cat " + (*file)->path() + " &)"});
  ASSERT_TRUE((*file)->AwaitOneThatHangs(kPatience));
  ASSERT_THAT(hosts().Find(1, "cat"), SizeIs(1));
  FaultNow();
  kill(worker(1), SIGKILL);
  EXPECT_THAT(job().AwaitLogged(1, "(cat)"), HasSubstr("state D"));
  EXPECT_THAT(job().AwaitLogged(1, "cannot join further rounds"), HasSubstr("(cat)"));
  ExpectFailure("SIGKILL", 1);
  ASSERT_THAT(hosts().Find(1, "cat"), SizeIs(1));
  (*file)->Release();
  job().ExpectEnd(1, {.code = 1});
  ExpectResult({0});
}

}  // namespace
}  // namespace ddprun
