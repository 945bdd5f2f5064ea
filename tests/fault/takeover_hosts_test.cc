// Jobs with a register on a real etcd, on simulated hosts: the host or the network of the coordinator is lost. In every case the
// job ends with the parameters of an undisturbed run.
#include <signal.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/etcd.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kKilled{.signal = SIGKILL};
constexpr int kEtcd = 2;  // the host of etcd

// Two hosts train, and host 0 leads.
class TakeoverHostsTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped()) return;
    const std::string why_not = EtcdServer::WhyNot();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    StartTraining({.etcd_members = etcd_members_});
    job().agent(1).HoldOut();  // so that a job that is taken over does not end before the test goes on
    ASSERT_THAT(job().agent(0).err(), HasSubstr("event=lead_begun"));
    ASSERT_THAT(job().agent(1).err(), Not(HasSubstr("event=lead_begun")));
  }
  // Host 1 leads, and continues alone from a snapshot; no restart is charged.
  void ExpectTakeover() {
    job().AwaitLogged(1, "event=lead_begun");
    Detected(job().agent(1).found_at());
    job().AwaitWorld(1, 1);
    Recovered(job().agent(1).found_at());
    EXPECT_THAT(job().AwaitPrinted(1, "event=resume"), Not(HasSubstr(" step=0 ")));
    EXPECT_THAT(job().agent(1).err(), Not(HasSubstr("restart_count=\"1\"")));
  }

  int etcd_members_ = 1;
};

TEST_F(TakeoverHostsTest, PowerLossOfTheCoordinatorsHost) {
  FaultNow();
  hosts().PowerOff(0);
  ExpectTakeover();
  EXPECT_EQ(job().agent(0).Wait(), kKilled);
  ExpectResult({1});
}

TEST_F(TakeoverHostsTest, ResetOfTheCoordinatorsHost) {
  FaultNow();
  hosts().Reset(0);
  ExpectTakeover();
  ExpectResult({1});
}

TEST_F(TakeoverHostsTest, PowerLossOfTheOtherHost) {
  FaultNow();
  hosts().PowerOff(1);
  ExpectChange("its lease expired", 1);
  ExpectResult({0});
}

TEST_F(TakeoverHostsTest, TheCableOfTheCoordinatorsHostIsCutAndHealed) {
  FaultNow();
  hosts().Cut(0);
  job().AwaitLogged(1, "event=lead_begun");
  EXPECT_THAT(hosts().Find(0, "train"), IsEmpty());
  Detected(job().agent(1).found_at());
  job().AwaitWorld(1, 1);
  Recovered(job().agent(1).found_at());
  hosts().Heal(0);
  AwaitWorldOf({1, 0});
  ExpectResult({1, 0});
}

TEST_F(TakeoverHostsTest, TheCoordinatorIsCutOffFromEtcdOnly) {
  FaultNow();
  hosts().DropPackets(0, kEtcd);
  job().AwaitLogged(0, "event=lead_lost");
  job().AwaitLogged(1, "event=lead_begun");
  Detected(job().agent(1).found_at());
  hosts().PassPackets(0, kEtcd);
  AwaitWorldOf({1, 0});
  Recovered(job().agent(0).found_at());
  ExpectResult({1, 0});
}

TEST_F(TakeoverHostsTest, AnotherHostIsCutOffFromEtcdOnly) {
  FaultNow();
  hosts().DropPackets(1, kEtcd);
  job().AwaitLogged(1, "event=register_trouble");
  ExpectResult({0, 1});
  ExpectUndisturbed();
  EXPECT_GE(hosts().Dropped(1), 1);
}

TEST_F(TakeoverHostsTest, TheCableOfEtcdIsCutAndHealed) {
  FaultNow();
  hosts().Cut(kEtcd);
  job().AwaitLogged(0, "event=lead_lost");
  Detected(job().agent(0).found_at());
  hosts().Heal(kEtcd);
  AwaitWorldOf({0, 1});
  Recovered(job().agent(1).found_at());
  EXPECT_THAT(job().agent(0).err(), Not(HasSubstr("restart_count=\"1\"")));
  // Either of them may lead now. A new leader does not wait for the host of the old one, which then has rank 1.
  const bool moved = job().agent(1).err().find("event=lead_begun") != std::string::npos;
  ExpectResult(moved ? std::vector{1, 0} : std::vector{0, 1});
}

TEST_F(TakeoverHostsTest, EachHostIsCutOffInTurn) {
  FaultNow();
  for (const int lost : {0, 1}) {
    const int other = 1 - lost;
    hosts().Cut(lost);
    job().AwaitWorld(other, 1);
    EXPECT_THAT(hosts().Find(lost, "train"), IsEmpty());
    if (lost == 0) Detected(job().agent(other).found_at());
    hosts().Heal(lost);
    AwaitWorldOf({other, lost});
    if (lost == 0) Recovered(job().agent(lost).found_at());
  }
  for (const int host : {0, 1}) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
  ExpectResult({0, 1});
}

class EtcdClusterTest : public TakeoverHostsTest {
 protected:
  EtcdClusterTest() { etcd_members_ = 3; }
};

// Its other members elect another one. The job may lose its lead meanwhile.
TEST_F(EtcdClusterTest, TheHostOfEtcdsLeaderIsLost) {
  const int etcd_leader = job().EtcdLeader();
  ASSERT_GE(etcd_leader, kEtcd);
  FaultNow();
  hosts().PowerOff(etcd_leader);
  // A restart, which needs etcd.
  kill(worker(1), SIGKILL);
  AwaitRoundEnd();
  AwaitWorldOf({0, 1});
  Recovered(job().agent(1).found_at());
  EXPECT_NE(job().EtcdLeader(), etcd_leader);
  ExpectCloseResult({0, 1});
}

}  // namespace
}  // namespace ddprun
