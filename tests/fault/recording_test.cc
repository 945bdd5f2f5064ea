// Replays the recording of a real job.
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class RecordingTest : public HostFaultTest {};

TEST_F(RecordingTest, AJobThatRestartsAndIsStoppedReplaysBitForBit) {
  const std::string file = MakeTestDirectory() + "/job.rec";
  HostJob job(2, {"--nnodes=2", "--max-restarts=1"}, {WorkerPath(), "--fail-in-round=0", "--fail-rank=1"});
  FaultNow();
  // Both agents get --record, but only the agent that hosts the coordinator records.
  for (const int host : {0, 1}) job.Start(host, {"--record=" + file + (host == 0 ? "" : ".other")});
  job.AwaitLogged(1, "event=round_started round=\"1\"");
  job.Control(0, {"stop"});
  for (const int host : {0, 1}) job.ExpectEnd(host, {.code = 1});
  EXPECT_FALSE(std::filesystem::exists(file + ".other"));

  Process replay({TestFile("tests/sim/sim"), "--replay=" + file});
  EXPECT_EQ(replay.Wait(), ProcessEnd{.code = 0}) << replay.out() << replay.err();
  EXPECT_THAT(replay.out(), HasSubstr("workers_failed of job"));
  EXPECT_THAT(replay.out(), HasSubstr("round_sealed of job job: round 1 with 2 nodes"));
  EXPECT_THAT(replay.out(), HasSubstr("request to stop job"));
  EXPECT_THAT(replay.out(), HasSubstr(": all outcomes match; all rules held"));
}

}  // namespace
}  // namespace ddprun
