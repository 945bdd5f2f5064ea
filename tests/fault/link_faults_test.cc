// Tests a network that is cut between two nodes, or lacks a route between them, while both reach the coordinator.
#include <signal.h>

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// Right after a cut is healed, a host may have no route until it has found its neighbor again.
TEST_F(LinkFaultsTest, AWorkerWaitsForARouteToAnother) {
  // Agents connect only to the coordinator.
  PrepareTraining({.min = 3, .max = 3, .batch = 12, .options = {"--quorum=none"}});
  // The kernel counts attempts to connect without a route.
  const auto refused = [&] {
    const auto shows = hosts().Start(2, {"/bin/sh", "-c", "awk '/^Ip: [0-9]/ { print $13 }' /proc/net/snmp"});
    EXPECT_TRUE(shows->Wait(kPatience));
    return std::stoi(shows->out());
  };
  const auto route = [&](const std::string& change) {
    hosts().Run(2, {"/usr/sbin/ip", "route", change, "throw", hosts().address(1) + "/32"});
  };
  route("add");
  const int before = refused();
  for (const int host : {0, 1, 2}) StartHost(host);
  for (const int host : {0, 1, 2}) job().AwaitWorld(host, 3);
  const TimePoint end = std::chrono::steady_clock::now() + kPatience;
  while (refused() == before) ASSERT_LT(std::chrono::steady_clock::now(), end);
  FaultNow();
  route("del");
  ExpectCloseResult({0, 1, 2});
  EXPECT_THAT(job().agent(0).err(), Not(HasSubstr("event=round_ended")));
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
