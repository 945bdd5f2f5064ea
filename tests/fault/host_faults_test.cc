// Tests hosts that are lost, and cables between hosts that are cut, slow or lossy. Two hosts train. In every
// case the job must end with the parameters of an undisturbed run.
#include <signal.h>

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kKilled{.signal = SIGKILL};

class HostFaultsTest : public TrainingTest {
 protected:
  // Expects that the workers of the second host are dead when the round ends, although no message can report
  // their death, and that the first host continues alone. Then calls heal() and expects that the second host
  // joins as a new node.
  void ExpectLossAndReturn(const std::function<void()>& heal) {
    AwaitRoundEnd();
    EXPECT_THAT(hosts().Find(1, "train"), IsEmpty());
    EXPECT_THAT(AwaitRestart(1), AllOf(HasSubstr("node node1"), Not(HasSubstr("restart_count=\"1\""))));
    heal();
    AwaitWorldOf({0, 1});
    ExpectResult({0, 1});
  }
};

TEST_F(HostFaultsTest, SilentPowerLoss) {
  StartTraining();
  FaultNow();
  hosts().PowerOff(1);
  ExpectChange("its lease expired", 1);
  EXPECT_EQ(job().agent(1).Wait(), kKilled);
  ExpectResult({0});
}

TEST_F(HostFaultsTest, AHostThatIsReset) {
  StartTraining();
  FaultNow();
  hosts().Reset(1);
  ExpectChange("its connection broke", 1);
  EXPECT_EQ(job().agent(1).Wait(), kKilled);
  ExpectResult({0});
}

TEST_F(HostFaultsTest, ACableCutAndHealedWithinTheLease) {
  StartTraining();
  FaultNow();
  hosts().Cut(1);
  // Training stops during the cut. After the cut, TCP may wait as long as the cut lasted before it
  // retransmits, so the cut is short.
  EXPECT_THAT(job().agent(0).AwaitOut("step=120/", 1, kLease / 4), IsEmpty());
  hosts().Heal(1);
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

TEST_F(HostFaultsTest, ACableCutAndHealedAfterTheLease) {
  StartTraining();
  FaultNow();
  hosts().Cut(1);
  ExpectLossAndReturn([this] { hosts().Heal(1); });
}

TEST_F(HostFaultsTest, InboundPacketsAreLost) {
  StartTraining();
  FaultNow();
  hosts().DropPackets(1, 0);
  ExpectLossAndReturn([this] {
    EXPECT_GE(hosts().Dropped(1), 1);
    hosts().PassPackets(1, 0);
  });
}

TEST_F(HostFaultsTest, OutboundPacketsAreLost) {
  StartTraining();
  FaultNow();
  hosts().DropPackets(0, 1);
  ExpectLossAndReturn([this] {
    EXPECT_GE(hosts().Dropped(0), 1);
    hosts().PassPackets(0, 1);
  });
}

// The other agent exits when the coordinator is lost. The job is started again and resumes from its snapshot.
TEST_F(HostFaultsTest, PowerLossOfTheCoordinatorsHost) {
  StartTraining({.options = {"--quorum=none"}});
  FaultNow();
  hosts().PowerOff(0);
  EXPECT_THAT(job().AwaitLogged(1, "the coordinator is lost"), HasSubstr("Start the job again"));
  Detected(job().agent(1).found_at());
  job().ExpectEnd(1, {.code = 1});
  job().SetEndpointHost(1);
  job().Start(1);
  EXPECT_THAT(job().AwaitPrinted(1, "event=resume"), Not(HasSubstr(" step=0 ")));
  Recovered(job().agent(1).found_at());
  ExpectResult({1});
}

TEST_F(HostFaultsTest, ASlowCable) {
  StartTraining();
  FaultNow();
  hosts().Slow(1, 20'000);
  job().AwaitPrinted(0, "step=120/");
  hosts().Unslow(1);
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

TEST_F(HostFaultsTest, ACableThatLosesPackets) {
  StartTraining();
  FaultNow();
  hosts().Lossy(1, 0.02);
  job().AwaitPrinted(0, "step=120/");
  EXPECT_GE(hosts().Dropped(1), 1);
  hosts().Unlossy(1);
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

}  // namespace
}  // namespace ddprun
