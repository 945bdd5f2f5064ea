// Two nodes and `ddprun --store-only` on a third host, as a voter of their job: the loss of any one of the three does not end the job.
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

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kSuccess{.code = 0};
const ProcessEnd kKilled{.signal = SIGKILL};
constexpr int kWitness = 2;

class WitnessTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped()) return;
    watch_ = std::make_unique<RoundWatch>();
    const Args endpoints = {"--rdzv-endpoint=node0:29400,node1:29400,node2:29400"};
    PrepareTraining({.hosts = 3, .more_options = {{0, endpoints}, {1, endpoints}}});
    StartWitness();
    StartBoth();
  }
  void TearDown() override {
    if (watch_) watch_->ExpectOneRoundAtATime(1);
  }

  void StartWitness() {
    witness_ = hosts().Start(kWitness, {DdprunPath(), "--store-only", "--host=0.0.0.0", "--port=29400"});
    ASSERT_THAT(witness_->AwaitOut("29400"), testing::SizeIs(1)) << witness_->err();
  }
  void StartBoth() {
    for (const int host : {0, 1}) {
      StartHost(host);
      job().agent(host).HoldOut();
    }
    AwaitWorldOf({0, 1});
    leader_ = Leads(0) ? 0 : 1;
    other_ = 1 - leader_;
    EXPECT_NE(Leads(0), Leads(1));
    AwaitVoters(leader_);
  }
  bool Leads(int host) { return job().agent(host).err().find("event=lead_begun") != std::string::npos; }
  // The leader says that the witness is one of three voters.
  void AwaitVoters(int leader) {
    EXPECT_THAT(job().AwaitLogged(leader, "voters of job job: "),
                AllOf(HasSubstr("node2:29400"), HasSubstr("the job survives the loss of any 1 of them")));
  }
  void ExpectOneGoesOn(int host) {
    job().AwaitWorld(host, 1);
    Recovered(job().agent(host).found_at());
    EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
    ExpectCloseResult({host});
  }

  int leader_ = -1, other_ = -1;
  std::unique_ptr<Process> witness_;
  std::unique_ptr<RoundWatch> watch_;
};

TEST_F(WitnessTest, PowerLossOfTheCoordinatorsHost) {
  FaultNow();
  hosts().PowerOff(leader_);
  job().AwaitLogged(other_, "event=lead_begun");
  Detected(job().agent(other_).found_at());
  ExpectOneGoesOn(other_);
}

TEST_F(WitnessTest, TheCoordinatorsHostIsCutOffAndBack) {
  FaultNow();
  hosts().Cut(leader_);
  job().AwaitLogged(other_, "event=lead_begun");
  Detected(job().agent(other_).found_at());
  job().AwaitWorld(other_, 1);
  hosts().Heal(leader_);
  AwaitWorldOf({other_, leader_});
  Recovered(job().agent(leader_).found_at());
  ExpectCloseResult({0, 1});
}

TEST_F(WitnessTest, PowerLossOfTheOtherHost) {
  FaultNow();
  hosts().PowerOff(other_);
  ExpectOneGoesOn(leader_);
}

// Without the witness the round goes on. A new one becomes a voter when the next round is sealed.
TEST_F(WitnessTest, TheWitnessIsKilledAndStartedAgain) {
  FaultNow();
  witness_->Signal(SIGKILL);
  EXPECT_EQ(witness_->Wait(), kKilled);
  EXPECT_THAT(job().agent(leader_).AwaitErr("event=lead_lost", 1, kLease), IsEmpty());
  StartWitness();
  kill(worker(other_), SIGKILL);
  AwaitWorldOf({0, 1});
  EXPECT_FALSE(Leads(other_));
  AwaitVoters(leader_);
  hosts().PowerOff(leader_);
  job().AwaitWorld(other_, 1);
  Recovered(job().agent(other_).found_at());
  ExpectCloseResult({other_});
}

// It remembers the job, but not beyond its end.
TEST_F(WitnessTest, TheJobIsStartedAgain) {
  FaultNow();
  ExpectCloseResult({0, 1});
  StartBoth();
  ExpectCloseResult({0, 1});
}

TEST_F(WitnessTest, NamesTheCoordinatorToDdpctl) {
  FaultNow();
  const std::string witness = "node2:29400";
  const auto by_job = job().Control(kWitness, {"status", "--job=job"}, witness);
  const auto by_list = job().Control(kWitness, {"status"}, witness + ",node0:29400,node1:29400");
  for (Process* const status : {by_job.get(), by_list.get()}) {
    EXPECT_EQ(status->Wait(), kSuccess) << status->err();
    EXPECT_THAT(status->out(), AllOf(HasSubstr("job job"), HasSubstr("2 nodes")));
  }
  ExpectCloseResult({0, 1});
}

}  // namespace
}  // namespace ddprun
