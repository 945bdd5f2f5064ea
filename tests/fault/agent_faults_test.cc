// Tests faults of agents and wardens whose hosts keep running. Two hosts train. In most tests the agent or
// the warden of the second host fails, the first host continues alone, and the second host joins again. The
// job must end with the parameters of an undisturbed run.
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
  // Expects that the round ends for `reason`, and that the second host's agent ends with `end` and leaves no
  // process. Then starts a new agent on that host and expects that the job succeeds.
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

TEST_F(AgentFaultsTest, AgentAndWardenKilledTogether) {
  StartTraining();
  const std::vector<pid_t> warden = hosts().Find(1, kWarden);
  ASSERT_EQ(warden.size(), 1);
  FaultNow();
  // The agent is stopped first, so that neither process can react to the death of the other.
  job().agent(1).Signal(SIGSTOP);
  kill(warden[0], SIGKILL);
  job().agent(1).Signal(SIGKILL);
  ExpectLossAndReturn("its connection broke", kKilled);
}

// The workers of the stopped agent must be dead before the other node continues, although the agent cannot
// stop them. After SIGCONT the agent joins as a new node.
TEST_F(AgentFaultsTest, StoppedPastItsLeaseAndContinued) {
  StartTraining();
  FaultNow();
  job().agent(1).Signal(SIGSTOP);
  AwaitRoundEnd();
  EXPECT_THAT(hosts().Find(1, "train"), IsEmpty());
  EXPECT_THAT(AwaitRestart(1), HasSubstr("its lease expired"));
  job().agent(1).Signal(SIGCONT);
  EXPECT_THAT(job().AwaitLogged(1, "joins again"), HasSubstr("node"));
  AwaitWorldOf({0, 1});
  ExpectResult({0, 1});
}

TEST_F(AgentFaultsTest, CoordinatorsAgentKilled) {
  StartTraining();
  FaultNow();
  job().agent(0).Signal(SIGKILL);
  EXPECT_THAT(job().AwaitLogged(1, "the coordinator is lost"), HasSubstr("Start the job again"));
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
