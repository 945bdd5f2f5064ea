// Jobs whose agents keep the register of the job, on simulated hosts: hosts are lost, or cut off. Where a majority of the voters is left,
// the job ends with all steps and the loss of an undisturbed run. CoordinatorLossTest has the losses of the coordinator in each state.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/round_watch.h"

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
    StartTraining({.max = 3,
                   .batch = 12,
                   .options = {"--exit-codes=scheduler",
                               "--rdzv-conf=last_call_timeout=1,lease_ms=2000,join_timeout=10"}});
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

TEST_F(VotersHostsTest, TheCableOfAnotherHostIsCutAndHealed) {
  FaultNow();
  hosts().Cut(2);
  ExpectChange("its lease expired", 2);
  EXPECT_THAT(hosts().Find(2, "train"), IsEmpty());
  hosts().Heal(2);
  for (const int host : {1, 2}) job().AwaitWorld(host, 3);
  // It is a voter again, at the latest a moment after the round has begun: without its vote, there is no majority.
  job().AwaitLogged(0, "the job survives the loss of any 1 of them");
  hosts().PowerOff(0);
  AwaitWorldOf({1, 2});
  EXPECT_NE(Leads(1), Leads(2));
  ExpectCloseResult({1, 2});
  for (const int host : {1, 2}) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
}

// The coordinator cannot tell this from a cut cable of its own, beyond which the others go on. The job may be started again.
TEST_F(VotersHostsTest, PowerLossOfBothOtherHosts) {
  FaultNow();
  for (const int host : {1, 2}) hosts().PowerOff(host);
  job().AwaitLogged(0, "event=lead_lost");
  Detected(job().agent(0).found_at());
  job().agent(0).FreeOut();
  EXPECT_EQ(job().agent(0).Wait(), ProcessEnd{.code = 75});
  EXPECT_THAT(job().agent(0).err(), HasSubstr("no quorum of the job's voters: 1 of 3 have answered"));
  EXPECT_THAT(hosts().Left(0), IsEmpty());
}

// Four voters. The half with the coordinator goes on.
class HalvesTest : public TrainingTest {
 protected:
  static constexpr int kHosts = 4;

  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped()) return;
    watch_ = std::make_unique<RoundWatch>();
    StartTraining({.max = kHosts, .batch = 12});
    for (int host = 1; host < kHosts; ++host) job().agent(host).HoldOut();
    ASSERT_THAT(job().agent(0).err(), HasSubstr("event=lead_begun"));
  }
  void TearDown() override {
    if (watch_) watch_->ExpectOneRoundAtATime(HasFailure() ? 0 : 3);
  }

  std::unique_ptr<RoundWatch> watch_;
};

TEST_F(HalvesTest, TheNetworkIsCutInTwo) {
  FaultNow();
  for (const int one : {0, 1}) {
    for (const int other : {2, 3}) {
      hosts().DropPackets(one, other);
      hosts().DropPackets(other, one);
    }
  }
  AwaitRoundEnd();
  job().AwaitWorld(0, 2);
  Recovered(job().agent(0).found_at());
  job().AwaitWorld(1, 2);
  for (const int host : {2, 3}) EXPECT_THAT(hosts().Find(host, "train"), IsEmpty());
  for (const int one : {0, 1}) {
    for (const int other : {2, 3}) {
      EXPECT_GE(hosts().Dropped(one), 1);
      hosts().PassPackets(one, other);
      hosts().PassPackets(other, one);
    }
  }
  AwaitWorldOf({0, 1, 2, 3});
  ExpectCloseResult({0, 1, 2, 3});
  for (int host = 0; host < kHosts; ++host) {
    EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
  }
  for (const int host : {1, 2, 3}) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("event=lead_begun")));
}

// The first three of four hosts have an endpoint each, at which the coordinator may be.
class EndpointsOfVotersTest : public HostFaultTest {
 protected:
  void SetUp() override {
    HostFaultTest::SetUp();
    if (IsSkipped()) return;
    job_ =
        std::make_unique<HostJob>(4, Args{"--nnodes=4", "--quorum=voters"}, Args{WorkerPath(), gate_.flag()});
    for (const int host : {0, 1, 2})
      endpoints_ += (host == 0 ? "" : ",") + job_->hosts().name(host) + ":29400";
  }
  void Start(int host, const Args& more = {}) {
    job_->Start(host, Args{"--rdzv-endpoint=" + endpoints_} + more);
  }
  int Leader() {
    for (const int host : {0, 1, 2}) {
      if (job_->agent(host).err().find("event=lead_begun") != std::string::npos) return host;
    }
    return -1;
  }

  Gate gate_;
  std::unique_ptr<HostJob> job_;
  std::string endpoints_;
};

TEST_F(EndpointsOfVotersTest, TheCoordinatorIsLostBeforeTheFirstRound) {
  for (const int host : {0, 1, 2}) Start(host);
  for (const int host : {0, 1, 2}) job_->AwaitLogged(host, "3/4 nodes joined");
  const int leader = Leader();
  ASSERT_GE(leader, 0);
  FaultNow();
  job_->agent(leader).Signal(SIGKILL);
  EXPECT_EQ(job_->agent(leader).Wait(), kKilled);
  // It is the first one of its list, and another node coordinates the job.
  Start(leader);
  Start(3);
  for (const int host : {0, 1, 2, 3}) job_->AwaitWorld(host, 4);
  EXPECT_THAT(job_->agent(leader).err(), Not(HasSubstr("event=lead_begun")));
  gate_.Open();
  for (const int host : {0, 1, 2, 3}) job_->ExpectEnd(host, {.code = 0});
}

TEST_F(EndpointsOfVotersTest, AnEndpointWithoutAnAgentIsNamed) {
  const Args soon = {"--rdzv-conf=read_timeout=2"};
  Start(0, soon);
  Start(1, soon);
  FaultNow();
  for (const int host : {0, 1}) {
    EXPECT_EQ(job_->agent(host).Wait(), ProcessEnd{.code = 1});
    EXPECT_THAT(job_->agent(host).err(), HasSubstr("not all endpoints of the job have answered within 2 s: " +
                                                   job_->hosts().name(2) + ":29400: "));
  }
}

}  // namespace
}  // namespace ddprun
