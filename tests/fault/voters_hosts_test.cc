// Jobs whose agents keep the register of the job, on three simulated hosts: the host or the network of the coordinator is lost. In
// every case the job ends with all steps and the loss of an undisturbed run.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/job.h"

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
