// Tests a network that is cut between two nodes, both of which still reach the coordinator.
#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Time limit for the workers to detect a cut: a lease, 1 s until TCP probes again, and 2 s for a busy
// machine.
constexpr Duration kNoticed = kLease + seconds(1) + seconds(2);

class LinkFaultsTest : public TrainingTest {
 protected:
  // Starts training on three hosts, then drops all packets between hosts 1 and 2.
  void CutBetweenOneAndTwo() {
    StartTraining({.min = 3, .max = 3, .batch = 12});
    FaultNow();
    hosts().DropPackets(1, 2);
    hosts().DropPackets(2, 1);
  }
  void Heal() {
    hosts().PassPackets(1, 2);
    hosts().PassPackets(2, 1);
  }
};

TEST_F(LinkFaultsTest, ACutBetweenTwoHostsIsReportedWithBothNames) {
  CutBetweenOneAndTwo();
  job().AwaitLogged(0, "event=round_ended", kNoticed);
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

// A stopped worker sends nothing for longer than the lease, but the kernel of its host answers TCP probes.
TEST_F(LinkFaultsTest, SilentWorkersDoNotEndTheRound) {
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
