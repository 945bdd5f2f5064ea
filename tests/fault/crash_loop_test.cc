// Tests that jobs in a crash loop end early and report why.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr ProcessEnd kFailure{.code = 1};

class CrashLoopTest : public HostFaultTest {};

TEST_F(CrashLoopTest, AWorkerThatFailsAtStartup) {
  HostJob job(2, {"--nnodes=2", "--max-restarts=5", "--min-uptime=60"},
              {WorkerPath(), "--fail-in-round=0", "--fail-rank=1"});
  FaultNow();
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, kFailure);
    EXPECT_THAT(job.agent(host).err(), HasSubstr("(--min-uptime): another start would end the same way"));
    EXPECT_THAT(job.agent(host).err(), Not(HasSubstr("event=round_started round=\"1\"")));
  }
}

// The worker of each round is killed as soon as a snapshot exists. The first worker writes the snapshot, and
// later workers resume from it.
TEST_F(CrashLoopTest, AWorkerThatMakesNoProgress) {
  const std::string snapshots = MakeTestDirectory();
  // ddprun replaces "$$" with "$".
  const std::string killer =
      "(until ls " + snapshots + " | grep -q snapshot-; do :; done; kill -KILL $$$$) &";
  HostJob job(1, {"--nnodes=1", "--max-restarts=50", "--max-restarts-without-progress=2"},
              Args{"/bin/sh", "-c", killer + " exec \"$@\"", "sh"} + Training() +
                  Args{"--snapshot-dir=" + snapshots, "--snapshot-every=10"});
  FaultNow();
  job.Start(0);
  job.ExpectEnd(0, kFailure);
  EXPECT_THAT(job.agent(0).err(), HasSubstr("SIGKILL"));
  EXPECT_THAT(job.agent(0).err(), HasSubstr("2 restarts in a row have not brought the job beyond step "));
  EXPECT_THAT(job.agent(0).err(), Not(HasSubstr("event=round_started round=\"20\"")));
}

}  // namespace
}  // namespace ddprun
