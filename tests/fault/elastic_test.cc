// Tests nodes that join and leave a running job. The job trains with all available nodes, up to its maximum,
// and must end with the parameters of an undisturbed run.
#include <signal.h>

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kKilled{.signal = SIGKILL};

class ElasticTest : public TrainingTest {
 protected:
  // Waits until the coordinator has received progress of the workers, which agents send in their heartbeats.
  void AwaitProgressReport() {
    const TimePoint deadline = std::chrono::steady_clock::now() + kPatience;
    while (job().Control(0, {"status", "--json"})->out().find("\"phase\":\"training\"") ==
           std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
};

TEST_F(ElasticTest, ANodeJoinsImmediately) {
  StartTraining({.present = 1});
  FaultNow();
  StartHost(1);
  ExpectChange("1 node joined the running job", 2);
  job().AwaitWorld(1, 2);
  ExpectResult({0, 1});
}

// The round ends at a snapshot that the coordinator requests.
TEST_F(ElasticTest, ANodeJoinsAtASnapshot) {
  StartTraining({.present = 1, .options = {"--scale-up=at-snapshot"}});
  AwaitProgressReport();
  FaultNow();
  StartHost(1);
  job().AwaitLogged(1, "the job is asked for a snapshot");
  EXPECT_THAT(job().AwaitPrinted(0, "event=resume"), Not(HasSubstr(" step=0 ")));
  job().AwaitLogged(0, "event=snapshot_asked");
  job().AwaitLogged(0, "event=snapshot_taken");
  EXPECT_THAT(job().AwaitLogged(0, "event=round_ended"), HasSubstr("a snapshot of step"));
  AwaitWorldOf({0, 1});
  ExpectResult({0, 1});
}

TEST_F(ElasticTest, ScaleUpNeverKeepsANodeAsSpare) {
  StartTraining({.present = 1, .options = {"--scale-up=never"}});
  StartHost(1);
  EXPECT_THAT(job().AwaitLogged(1, "--scale-up=never"), HasSubstr("this node is a spare"));
  job().AwaitPrinted(0, "step=100/");
  ExpectUndisturbed();
  FaultNow();
  kill(worker(0), SIGKILL);
  ExpectFailure("SIGKILL", 2);
  ExpectResult({0, 1});
}

// The drained agent exits with 0. The drain does not use up the only restart of the job.
TEST_F(ElasticTest, ANodeIsDrained) {
  StartTraining();
  FaultNow();
  const auto control = job().Control(0, {"drain", "node1", "--reason=a fan rattles"});
  EXPECT_EQ(control->Wait(), ProcessEnd{.code = 0}) << control->err();
  EXPECT_THAT(job().AwaitPrinted(0, "event=resume"), Not(HasSubstr(" step=0 ")));
  EXPECT_THAT(job().AwaitLogged(0, "event=round_ended"), HasSubstr("a fan rattles"));
  Detected(job().agent(0).found_at());
  job().AwaitWorld(0, 1);
  Recovered(job().agent(0).found_at());
  job().ExpectEnd(1, {.code = 0});
  kill(worker(0), SIGKILL);
  ExpectFailure("SIGKILL", 1);
  StartHost(1);
  AwaitWorldOf({0, 1});
  ExpectResult({0, 1});
}

TEST_F(ElasticTest, TheCoordinatorsNodeIsNotDrained) {
  StartTraining({.options = {"--quorum=none"}});
  FaultNow();
  const auto control = job().Control(1, {"drain", "node0"});
  EXPECT_EQ(control->Wait(), ProcessEnd{.code = 3});
  EXPECT_THAT(control->err(), HasSubstr("stop the job instead"));
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

TEST_F(ElasticTest, TheJobWaitsBelowTheMinimumAndContinues) {
  StartTraining({.min = 2});
  FaultNow();
  job().agent(1).Signal(SIGKILL);
  EXPECT_EQ(job().agent(1).Wait(), kKilled);
  AwaitRoundEnd();
  EXPECT_THAT(job().AwaitLogged(0, "waiting for node1 (lost"), HasSubstr("1/2 nodes joined"));
  EXPECT_THAT(hosts().Left(1), IsEmpty());
  StartHost(1);
  AwaitRestart(2);
  job().AwaitWorld(1, 2);
  ExpectResult({0, 1});
}

TEST_F(ElasticTest, ASpareTakesOverWithinOneRound) {
  StartTraining({.hosts = 3, .present = 2});
  StartHost(2);
  EXPECT_THAT(job().AwaitLogged(2, "this node is a spare and takes over when one is lost"),
              HasSubstr("maximum"));
  FaultNow();
  hosts().PowerOff(1);
  EXPECT_EQ(job().agent(1).Wait(), kKilled);
  ExpectChange("its lease expired", 2);
  job().AwaitWorld(2, 2);
  ExpectResult({0, 2});
}

TEST_F(ElasticTest, NodesWithDifferentNumbersOfWorkers) {
  StartTraining({.more_options = {{1, {"--nproc-per-node=3"}}}}, 4);
  EXPECT_THAT(hosts().Find(1, "train"), testing::SizeIs(3));
  FaultNow();
  kill(worker(0), SIGKILL);
  ExpectFailure("SIGKILL", 4);
  ExpectResult({0, 1});
}

TEST_F(ElasticTest, TheNumberOfNodesIsAMultipleOfTheNodeUnit) {
  StartTraining({.min = 2, .max = 4, .present = 2, .options = {"--node-unit=2"}});
  FaultNow();
  StartHost(2);
  EXPECT_THAT(job().AwaitLogged(2, "this node is a spare until 1 more node joins"), HasSubstr("--node-unit"));
  StartHost(3);
  ExpectChange("2 nodes joined the running job", 4);
  for (const int host : {1, 2, 3}) job().AwaitWorld(host, 4);
  ExpectResult({0, 1, 2, 3});
}

}  // namespace
}  // namespace ddprun
