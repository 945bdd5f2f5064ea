// A job continues under a new coordinator.

#include <string>

#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

constexpr JobRules kRules{.min_nodes = 2,
                          .max_nodes = 4,
                          .max_restarts = 1,
                          .first_last_call = seconds(30),
                          .last_call = seconds(10),
                          .join_timeout = seconds(600),
                          .lease = seconds(5)};

class RoundCharterTest : public RoundMachineTest {
 protected:
  // Round 0 of the nodes a, b and c; the coordinator is on the host of a.
  void RunRound(JobRules rules = kRules) {
    rules.max_nodes = std::max(rules.max_nodes, 3);
    Use(rules);
    Step(NodeJoined{{.id = NodeId("a"),
                     .host = "host-a",
                     .addr = "addr-a",
                     .store_port = 100,
                     .hosts = true,
                     .leased = false,
                     .gone_token = "token-a"}});
    Join("b");
    Join("c");
    if (machine_->state() == State::kGathering) WaitAlive(seconds(31), {"b", "c"});
    ASSERT_EQ(machine_->state(), State::kRunning);
  }
  // The coordinator changes. Its clock has nothing to do with that of the old one.
  void TakeOver(Takeover how = Takeover::kFenced) {
    const Charter charter = machine_->charter();
    now_ = TimePoint(seconds(7));
    RoundEffects notes;
    machine_.emplace(charter, how, now_, notes);
    Charter now = machine_->charter();
    EXPECT_EQ(now, charter);
    last_ = notes;
  }
  Words ComeBack(const std::string& id, int round, int rank, std::optional<int64_t> step = {},
                 Duration ran = seconds(1)) {
    return Step(NodeJoined{{.id = NodeId(id + "2"),
                            .host = "host-" + id,
                            .addr = "addr-" + id,
                            .store_port = 100,
                            .last = LastPlace{Round(round), GroupRank(rank), Rank(rank), step, ran}}});
  }
};

TEST_F(RoundCharterTest, TheNextRoundBeginsWhenAllButTheLostHostAreBack) {
  RunRound();
  TakeOver();
  EXPECT_EQ(machine_->state(), State::kGathering);
  EXPECT_EQ(machine_->round(), Round(0));
  EXPECT_THAT(ComeBack("c", 0, 2), IsEmpty());
  EXPECT_THAT(ComeBack("b", 0, 1), ElementsAre("b2:start r1 node0/2 rank0/2 n0 addr-b:100",
                                               "c2:start r1 node1/2 rank1/2 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, WithoutFencesTheNodeOfTheCoordinatorMustBeProvenGone) {
  RunRound();
  TakeOver(Takeover::kUnfenced);
  ComeBack("c", 0, 2);
  EXPECT_THAT(ComeBack("b", 0, 1), IsEmpty());
  EXPECT_FALSE(machine_->WasCoordinator(NodeId("b"), "token-a"));
  EXPECT_FALSE(machine_->WasCoordinator(NodeId("a"), ""));
  EXPECT_TRUE(machine_->WasCoordinator(NodeId("a"), "token-a"));
  EXPECT_THAT(Step(NodeGone{NodeId("b")}), IsEmpty());
  EXPECT_THAT(Step(NodeGone{NodeId("a")}), ElementsAre("b2:start r1 node0/2 rank0/2 n0 addr-b:100",
                                                       "c2:start r1 node1/2 rank1/2 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, WithoutFencesMembersThatDoNotComeBackAreWaitedForALease) {
  RunRound({.min_nodes = 1, .max_nodes = 4, .lease = seconds(6)});
  TakeOver(Takeover::kUnfenced);
  Step(NodeGone{NodeId("a")});
  ComeBack("c", 0, 2);
  EXPECT_THAT(WaitAlive(seconds(5), {"c2"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("c2:start r1 node0/1 rank0/1 n0 addr-c:100"));
}

TEST_F(RoundCharterTest, AfterAHandOverAllMembersAreWaitedFor) {
  RunRound();
  TakeOver(Takeover::kHandedOver);
  ComeBack("c", 0, 2);
  EXPECT_THAT(ComeBack("b", 0, 1), IsEmpty());
  EXPECT_THAT(ComeBack("a", 0, 0), ElementsAre("a2:start r1 node0/3 rank0/3 n0 addr-a:100",
                                               "b2:start r1 node1/3 rank1/3 n0 addr-a:100",
                                               "c2:start r1 node2/3 rank2/3 n0 addr-a:100"));
}

TEST_F(RoundCharterTest, DoesNotWaitLongForMembersThatAreLost) {
  RunRound({.min_nodes = 1, .max_nodes = 4, .lease = seconds(6)});
  TakeOver();
  ComeBack("c", 0, 2);
  EXPECT_THAT(WaitAlive(seconds(2), {"c2"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(1)), ElementsAre("c2:start r1 node0/1 rank0/1 n0 addr-c:100"));
}

TEST_F(RoundCharterTest, ANewcomerIsNoMember) {
  RunRound();
  TakeOver();
  Join("d");
  EXPECT_THAT(ComeBack("b", 0, 1), IsEmpty());
  EXPECT_THAT(ComeBack("c", 0, 2), ElementsAre("b2:start r1 node0/3 rank0/3 n0 addr-b:100",
                                               "c2:start r1 node1/3 rank1/3 n0 addr-b:100",
                                               "d:start r1 node2/3 rank2/3 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, AFullRoundWaitsForNoNode) {
  RunRound({.min_nodes = 2, .max_nodes = 3});
  TakeOver();
  Join("d");
  Join("e");
  EXPECT_THAT(ComeBack("b", 0, 1), ElementsAre("b2:start r1 node0/3 rank0/3 n0 addr-b:100",
                                               "d:start r1 node1/3 rank1/3 n0 addr-b:100",
                                               "e:start r1 node2/3 rank2/3 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, WithTooFewNodesTheJobGathers) {
  RunRound({.min_nodes = 3, .max_nodes = 3, .join_timeout = seconds(60)});
  TakeOver();
  ComeBack("b", 0, 1);
  ComeBack("c", 0, 2);
  EXPECT_THAT(WaitAlive(seconds(50), {"b2", "c2"}), IsEmpty());
  EXPECT_THAT(Join("d"), ElementsAre("b2:start r1 node0/3 rank0/3 n0 addr-b:100",
                                     "c2:start r1 node1/3 rank1/3 n0 addr-b:100",
                                     "d:start r1 node2/3 rank2/3 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, SaysWhoIsMissing) {
  RunRound({.min_nodes = 3, .max_nodes = 3});
  TakeOver();
  ComeBack("b", 0, 1);
  EXPECT_THAT(WaitingNotice(), HasSubstr("host-a (lost 0 ms ago: it has not joined the new coordinator"));
  EXPECT_THAT(WaitingNotice(), Not(HasSubstr("host-b")));
}

TEST_F(RoundCharterTest, GivesUpAfterTheJoinTimeout) {
  RunRound({.min_nodes = 3, .max_nodes = 3, .join_timeout = seconds(60)});
  TakeOver();
  ComeBack("b", 0, 1);
  // Counted from the end of the wait for the members.
  EXPECT_THAT(WaitAlive(seconds(61), {"b2"}), IsEmpty());
  EXPECT_THAT(Wait(seconds(2)), ElementsAre("b2:dismiss join timeout"));
}

TEST_F(RoundCharterTest, ChargedRestartsRemain) {
  RunRound();
  Failed("b", 0);
  Ready("a", 0, 1);
  Ready("b", 0, 1);
  Ready("c", 0, 1);
  ASSERT_EQ(machine_->round(), Round(1));
  ASSERT_EQ(machine_->restarts(), 1);
  TakeOver();
  ComeBack("b", 1, 1);
  EXPECT_THAT(ComeBack("c", 1, 2), ElementsAre("b2:start r2 node0/2 rank0/2 n1 addr-b:100",
                                               "c2:start r2 node1/2 rank1/2 n1 addr-b:100"));
  Failed("b2", 2);
  Ready("b2", 2, 1);
  EXPECT_THAT(Ready("c2", 2, 1),
              ElementsAre("b2:report r2", "c2:report r2", "b2:dismiss failed", "c2:dismiss failed"));
}

TEST_F(RoundCharterTest, ARestartThatWasNotYetDecidedIsNotCharged) {
  RunRound();
  Failed("b", 0);
  ASSERT_EQ(machine_->state(), State::kDraining);
  TakeOver();
  ComeBack("b", 0, 1);
  ComeBack("c", 0, 2);
  EXPECT_EQ(machine_->restarts(), 0);
  EXPECT_EQ(machine_->round(), Round(1));
}

TEST_F(RoundCharterTest, AClosedJobStaysClosed) {
  RunRound({.min_nodes = 2, .max_nodes = 4});
  Failed("b", 0);
  for (const char* id : {"a", "b", "c"}) Ready(id, 0, 1);
  ASSERT_EQ(machine_->state(), State::kClosed);
  TakeOver();
  EXPECT_EQ(machine_->state(), State::kClosed);
  EXPECT_THAT(Join("d"), ElementsAre("d:dismiss failed"));
  EXPECT_THAT(DismissalText("d"), HasSubstr("rank 0 exit 1"));
}

TEST_F(RoundCharterTest, AJobThatSucceededStaysClosed) {
  RunRound();
  for (const char* id : {"a", "b", "c"}) Succeeded(id, 0);
  TakeOver();
  EXPECT_THAT(Join("d"), ElementsAre("d:dismiss rejected"));
  EXPECT_EQ(DismissalText("d"), "the job is closed: it has succeeded");
}

TEST_F(RoundCharterTest, TheQuorumCountsTheLastRound) {
  RunRound({.min_nodes = 1, .max_nodes = 4, .lease = seconds(6), .quorum = Quorum::kMajority});
  TakeOver();
  ComeBack("c", 0, 2);
  EXPECT_THAT(WaitAlive(seconds(60), {"c2"}), IsEmpty());
  EXPECT_THAT(ComeBack("b", 0, 1), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(31), {"b2", "c2"}), Not(IsEmpty()));
}

TEST_F(RoundCharterTest, ANodeThatLeftIsNotWaitedFor) {
  RunRound({.min_nodes = 1, .max_nodes = 4});
  Leaving("c");
  Ready("a", 0, 1);
  Ready("b", 0, 1);
  Left("c");
  TakeOver();
  EXPECT_THAT(ComeBack("b", 1, 1), ElementsAre("b2:start r2 node0/1 rank0/1 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, ANodeThatWasToBeDrainedLeavesWhenItIsBack) {
  RunRound({.min_nodes = 1, .max_nodes = 4});
  const int64_t version = machine_->charter_version();
  Step(DrainRequested{NodeId("c"), "maintenance"});
  EXPECT_GT(machine_->charter_version(), version);
  TakeOver();
  EXPECT_THAT(ComeBack("b", 0, 1), IsEmpty());
  EXPECT_THAT(ComeBack("c", 0, 2),
              ElementsAre("c2:dismiss drained", "b2:start r1 node0/1 rank0/1 n0 addr-b:100"));
  EXPECT_THAT(machine_->charter().drains, IsEmpty());
}

TEST_F(RoundCharterTest, ADrainEndsWithTheNextRound) {
  RunRound({.min_nodes = 1, .max_nodes = 4, .lease = seconds(6)});
  Step(DrainRequested{NodeId("c"), "maintenance"});
  TakeOver();
  ComeBack("b", 0, 1);
  Wait(seconds(3));
  ASSERT_EQ(machine_->round(), Round(1));
  EXPECT_THAT(machine_->charter().drains, IsEmpty());
}

TEST_F(RoundCharterTest, AnExcludedHostStaysExcluded) {
  RunRound({.min_nodes = 1, .max_nodes = 4, .max_restarts = 9, .exclude_after = 1});
  Failed("c", 0, {.host = "host-c", .exit = Exited{1}, .cause = "rank 2 exit 1"});
  Ready("a", 0, 1);
  Ready("b", 0, 1);
  Ready("c", 0, 1, {{.host = "host-c", .exit = Exited{1}, .cause = "rank 2 exit 1"}});
  TakeOver();
  ComeBack("c", 0, 2);
  EXPECT_THAT(ComeBack("b", 1, 1), ElementsAre("b2:start r2 node0/1 rank0/1 n1 addr-b:100"));
}

TEST_F(RoundCharterTest, ExpectedHostsRemain) {
  JobRules rules = kRules;
  rules.admission = Admission::kExpected;
  Use(rules);
  Step(NodeJoined{{.id = NodeId("a"), .host = "host-a"}, {"host-a", "host-b", "host-c"}});
  Join("b");
  Join("c");
  ASSERT_EQ(machine_->state(), State::kRunning);
  Leaving("c");
  Ready("a", 0, 1);
  Ready("b", 0, 1);
  Left("c");
  ASSERT_EQ(machine_->round(), Round(1));
  TakeOver(Takeover::kHandedOver);
  ComeBack("b", 1, 1);
  // host-a may come, host-c may not.
  EXPECT_THAT(WaitAlive(seconds(20), {"b2"}), IsEmpty());
  EXPECT_EQ(machine_->charter().expected_hosts, (std::set<std::string>{"host-a", "host-b"}));
}

TEST_F(RoundCharterTest, LossesOfTheCoordinatorWithoutProgressEndTheJob) {
  RunRound({.min_nodes = 1, .max_nodes = 4});
  int pauses = 0;
  for (int round = 0; round < LossStreak::kMax; ++round) {
    TakeOver();
    const Words back = ComeBack("b", round, 1, /*step=*/100);
    ComeBack("c", round, 2, /*step=*/100);
    if (round == LossStreak::kMax - 1) break;
    if (machine_->state() == State::kGathering) {
      ++pauses;
      WaitAlive(seconds(40), {"b2", "c2"});
    }
    ASSERT_EQ(machine_->round(), Round(round + 1));
  }
  EXPECT_GT(pauses, 5);
  WaitAlive(seconds(10), {"b2", "c2"});
  ASSERT_EQ(machine_->state(), State::kClosed);
  EXPECT_THAT(ToText(machine_->end()), HasSubstr("nodes were lost in 10 rounds in a row"));
}

TEST_F(RoundCharterTest, LossesWithProgressDoNot) {
  RunRound({.min_nodes = 1, .max_nodes = 4});
  for (int round = 0; round < 3 * LossStreak::kMax; ++round) {
    TakeOver();
    ComeBack("b", round, 1, 100 + round);
    ComeBack("c", round, 2, 100 + round);
    WaitAlive(seconds(4), {"b2", "c2"});
    ASSERT_EQ(machine_->round(), Round(round + 1));
  }
}

TEST_F(RoundCharterTest, AJobThatHasHadNoRoundBeginsWithTheFirstLastCall) {
  Use(kRules);
  Join("a");
  TakeOver();
  Join("b");
  Join("c");
  EXPECT_THAT(WaitAlive(seconds(29), {"b", "c"}), IsEmpty());
  EXPECT_THAT(WaitAlive(seconds(2), {"b", "c"}), ElementsAre("b:start r0 node0/2 rank0/2 n0 addr-b:100",
                                                             "c:start r0 node1/2 rank1/2 n0 addr-b:100"));
}

TEST_F(RoundCharterTest, APlaceInALaterRoundThanTheChartersIsNotBelieved) {
  RunRound();
  TakeOver();
  ComeBack("b", 7, 1);
  EXPECT_FALSE(machine_->membership().At(NodeId("b2")).round.has_value());
}

}  // namespace
}  // namespace ddprun
