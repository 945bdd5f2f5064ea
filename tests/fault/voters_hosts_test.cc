// Jobs whose agents keep the register of the job, on three simulated hosts: the host or the network of the coordinator is lost. In
// every case the job ends with all steps and the loss of an undisturbed run.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kKilled{.signal = SIGKILL};

class VotersHostsTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped()) return;
    StartTraining({.max = 3, .batch = 12, .options = {"--quorum=voters"}});
    // So that a job that is taken over does not end before the test goes on.
    for (const int host : {1, 2}) job().agent(host).HoldOut();
    ASSERT_THAT(job().agent(0).err(), HasSubstr("event=lead_begun"));
  }
  bool Leads(int host) { return job().agent(host).err().find("event=lead_begun") != std::string::npos; }
  // Host 1 or 2 leads, and both continue; no restart is charged.
  void ExpectTakeover() {
    job().AwaitWorld(1, 2);
    Detected(job().agent(1).found_at());
    job().AwaitWorld(2, 2);
    Recovered(job().agent(2).found_at());
    EXPECT_NE(Leads(1), Leads(2));
    for (const int host : {1, 2}) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
  }
};

TEST_F(VotersHostsTest, PowerLossOfTheCoordinatorsHost) {
  FaultNow();
  hosts().PowerOff(0);
  ExpectTakeover();
  EXPECT_EQ(job().agent(0).Wait(), kKilled);
  ExpectCloseResult({1, 2});
}

TEST_F(VotersHostsTest, ResetOfTheCoordinatorsHost) {
  FaultNow();
  hosts().Reset(0);
  ExpectTakeover();
  ExpectCloseResult({1, 2});
}

TEST_F(VotersHostsTest, PowerLossOfAnotherHost) {
  FaultNow();
  hosts().PowerOff(2);
  ExpectChange("its lease expired", 2);
  ExpectCloseResult({0, 1});
}

TEST_F(VotersHostsTest, TheCableOfTheCoordinatorsHostIsCutAndHealed) {
  FaultNow();
  hosts().Cut(0);
  ExpectTakeover();
  EXPECT_THAT(hosts().Find(0, "train"), IsEmpty());
  hosts().Heal(0);
  for (const int host : {0, 1, 2}) job().AwaitWorld(host, 3);
  EXPECT_THAT(job().agent(0).err(), HasSubstr("event=lead_lost"));
  ExpectCloseResult({0, 1, 2});
}

}  // namespace
}  // namespace ddprun
