// The network between two nodes is cut while both still reach the coordinator.
#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Limit for the workers' mesh to detect a cut: a lease, 1 s until TCP probes again, and 2 s
// for a busy machine.
constexpr Duration kNoticed = kLease + seconds(1) + seconds(2);

class LinkFaultsTest : public TrainingTest {
 protected:
  // Three hosts train; packets between hosts 1 and 2 are dropped.
  void CutBetweenOneAndTwo() {
    StartTraining({.min = 3, .max = 3, .batch = 12});
    FaultNow();
    hosts().Deafen(1, 2);
    hosts().Deafen(2, 1);
  }
  void Heal() {
    hosts().Undeafen(1, 2);
    hosts().Undeafen(2, 1);
  }
};

TEST_F(LinkFaultsTest, ACutBetweenTwoHostsThatReachTheCoordinatorIsNamed) {
  CutBetweenOneAndTwo();
  job().AwaitSaid(0, "event=round_ended", kNoticed);
  Detected(job().agent(0).found_at());
  EXPECT_GE(hosts().Dropped(1) + hosts().Dropped(2), 1);
  Heal();
  const std::string said = AwaitRestart(3);
  EXPECT_THAT(said, HasSubstr("restart_count=\"1\""));
  EXPECT_THAT(job().agent(1).err() + job().agent(2).err(),
              AllOf(HasSubstr("the network between node"), HasSubstr("(" + hosts().address(1) + ")"),
                    HasSubstr("(" + hosts().address(2) + ")"), HasSubstr("is cut or drops packets")));
  ExpectResult({0, 1, 2});
}

// Workers are silent for longer than the lease, but their kernels answer TCP probes.
TEST_F(LinkFaultsTest, HostsWhoseWorkersAreSilentForLongAreNotCutOff) {
  StartTraining();
  FaultNow();
  const pid_t stopped = worker(1);
  kill(stopped, SIGSTOP);
  EXPECT_THAT(job().agent(0).AwaitErr("event=round_ended", 1, 3 * kLease), testing::IsEmpty());
  kill(stopped, SIGCONT);
  ExpectResult({0, 1});
  ExpectUndisturbed();
}

}  // namespace
}  // namespace ddprun
