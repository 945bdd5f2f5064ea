// Replays the recording of a real job.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class RecordingTest : public HostFaultTest {};

TEST_F(RecordingTest, AJobThatRestartsAndIsStoppedReplaysBitForBit) {
  const std::string file = MakeTestDirectory() + "/job.rec";
  HostJob job(2, {"--nnodes=2", "--max-restarts=1", "--quorum=none"},
              {WorkerPath(), "--fail-in-round=0", "--fail-rank=1"});
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

// All agents have the same --record, as on a file system that the nodes share.
TEST(RecordingOfVotersTest, BothCoordinatorsOfAJobReplayBitForBit) {
  AdoptOrphans();
  const std::string file = MakeTestDirectory() + "/job.rec";
  Gate gate;
  std::vector<std::unique_ptr<Process>> agents;
  Args rendezvous;
  const auto expect_world = [](Process& agent, size_t size) {
    ASSERT_THAT(agent.AwaitOut("world_size=" + std::to_string(size) + " "), testing::SizeIs(1))
        << agent.out() << agent.err();
  };
  for (size_t i = 0; i < 3; ++i) {
    agents.push_back(std::make_unique<Process>(
        Args{DdprunPath(), "--nnodes=1:3", "--rdzv-id=j", "--quorum=voters", "--record=" + file,
             "--rdzv-conf=last_call_timeout=1,join_timeout=20,lease_ms=2000"} +
            rendezvous + Args{WorkerPath(), gate.flag()},
        Stdio::kPipes, Environment{{"LOGLEVEL", "INFO"}}));
    if (i == 0) {
      const std::vector<std::string> line = agents[0]->AwaitErr("other nodes join with: ");
      ASSERT_THAT(line, testing::SizeIs(1)) << agents[0]->err();
      const size_t at = line[0].find("--rdzv-endpoint=");
      rendezvous = {"--rdzv-backend=c10d", line[0].substr(at, line[0].find(' ', at) - at)};
    }
    for (const auto& agent : agents) expect_world(*agent, i + 1);
  }
  agents[0]->Signal(SIGKILL);
  EXPECT_EQ(agents[0]->Wait(), ProcessEnd{.signal = SIGKILL});
  for (const size_t i : {1, 2}) expect_world(*agents[i], 2);
  gate.Open();
  for (const size_t i : {1, 2}) EXPECT_EQ(agents[i]->Wait(), ProcessEnd{.code = 0}) << agents[i]->err();

  EXPECT_FALSE(std::filesystem::exists(file));
  std::vector<std::string> replayed;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(file).parent_path())) {
    Process replay({TestFile("tests/sim/sim"), "--replay=" + entry.path().string()});
    EXPECT_EQ(replay.Wait(), ProcessEnd{.code = 0}) << entry.path() << replay.out() << replay.err();
    EXPECT_THAT(replay.out(), HasSubstr(": all outcomes match; all rules held"));
    replayed.push_back(replay.out());
  }
  ASSERT_THAT(replayed, testing::SizeIs(2)) << agents[1]->err() << agents[2]->err();
  EXPECT_THAT(replayed, testing::UnorderedElementsAre(HasSubstr("begins to lead job j: it is new"),
                                                      HasSubstr("begins to lead job j: UNFENCED")));
}

}  // namespace
}  // namespace ddprun
