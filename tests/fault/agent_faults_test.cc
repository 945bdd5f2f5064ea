// Agents and wardens that end while their hosts keep running. Two hosts train. The agent or warden of the
// second fails, the first continues alone, and after the second has rejoined, the job ends with the
// parameters of an undisturbed run.
#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kFailure{.code = 1};
const ProcessEnd kKilled{.signal = SIGKILL};
constexpr char kWarden[] = "ddp-warden";

class AgentFaultsTest : public TrainingTest {
 protected:
  // The second host's agent ends with all its processes; another agent replaces it.
  void ExpectLossAndReturn(const std::string& reason, const ProcessEnd& end) {
    ExpectChange(reason, 1);
    job().ExpectEnd(1, end);
    StartHost(1);
    AwaitWorldOf({0, 1});
    ExpectResult({0, 1});
  }
};

TEST_F(AgentFaultsTest, Sigterm) {
  StartTraining();
  FaultNow();
  job().agent(1).Signal(SIGTERM);
  ExpectLossAndReturn("its agent received SIGTERM", kFailure);
}

TEST_F(AgentFaultsTest, Sigkill) {
  StartTraining();
  FaultNow();
  job().agent(1).Signal(SIGKILL);
  ExpectLossAndReturn("its agent has gone, and so have all its workers", kKilled);
}

TEST_F(AgentFaultsTest, WardenKilled) {
  StartTraining();
  const std::vector<pid_t> warden = hosts().Find(1, kWarden);
  ASSERT_EQ(warden.size(), 1);
  FaultNow();
  kill(warden[0], SIGKILL);
  ExpectLossAndReturn("was killed by a signal (SIGKILL)", kFailure);
}

TEST_F(AgentFaultsTest, WardenStopped) {
  StartTraining();
  const std::vector<pid_t> warden = hosts().Find(1, kWarden);
  ASSERT_EQ(warden.size(), 1);
  FaultNow();
  kill(warden[0], SIGSTOP);
  ExpectLossAndReturn("has not answered for 5 s, in state T", kFailure);
}

TEST_F(AgentFaultsTest, AgentAndWardenKilledAtOnce) {
  StartTraining();
  const std::vector<pid_t> warden = hosts().Find(1, kWarden);
  ASSERT_EQ(warden.size(), 1);
  FaultNow();
  // Neither can react to the end of the other.
  job().agent(1).Signal(SIGSTOP);
  kill(warden[0], SIGKILL);
  job().agent(1).Signal(SIGKILL);
  ExpectLossAndReturn("its connection broke", kKilled);
}

// Its workers are dead before the other node continues, although a stopped agent receives no message. When it
// continues, it rejoins as a new node.
TEST_F(AgentFaultsTest, StoppedPastItsLeaseAndContinued) {
  StartTraining();
  FaultNow();
  job().agent(1).Signal(SIGSTOP);
  AwaitRoundEnd();
  EXPECT_THAT(hosts().Find(1, "train"), IsEmpty());
  EXPECT_THAT(AwaitRestart(1), HasSubstr("its lease expired"));
  job().agent(1).Signal(SIGCONT);
  EXPECT_THAT(job().AwaitSaid(1, "joins again"), HasSubstr("node"));
  AwaitWorldOf({0, 1});
  ExpectResult({0, 1});
}

TEST_F(AgentFaultsTest, TheCoordinatorsAgent) {
  StartTraining();
  FaultNow();
  job().agent(0).Signal(SIGKILL);
  EXPECT_THAT(job().AwaitSaid(1, "the coordinator is lost"), HasSubstr("Start the job again"));
  Detected(job().agent(1).found_at());
  job().ExpectEnd(0, kKilled);
  job().ExpectEnd(1, kFailure);
  job().Start(0);
  job().Start(1);
  job().AwaitWorld(1, 2);
  Recovered(job().agent(1).found_at());
  EXPECT_THAT(job().AwaitPrinted(0, "event=resume"), Not(HasSubstr(" step=0 ")));
  ExpectResult({0, 1});
}

}  // namespace
}  // namespace ddprun
