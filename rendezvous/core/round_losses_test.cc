// Tests of repeated losses of nodes, of hosts that fail repeatedly, and of partitions of a job.
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

class RoundLossesTest : public RoundMachineTest {
 protected:
  // All nodes in `ids` report that they have stopped their workers of `round`.
  void ReadyAll(const std::vector<std::string>& ids, int round) {
    for (const std::string& id : ids) Ready(id, round, 200);
  }
};

// A container is killed repeatedly together with its agent. Each time it returns as a new node.
TEST_F(RoundLossesTest, RepeatedLossesWithoutProgressPauseAndThenEndTheJob) {
  Use({.min_nodes = 1, .max_nodes = 2, .first_last_call = seconds(0), .last_call = seconds(0)});
  Join("a");
  Join("b0");
  Ready("a", 0, 200);
  Duration waited = Duration::zero();
  int losses = 0;
  for (int i = 0; machine_->state() != State::kClosed && i < 100; ++i) {
    ASSERT_EQ(machine_->state(), State::kRunning);
    const int round = static_cast<int>(machine_->round()->value());
    Killed(absl::StrCat("b", i));
    ++losses;
    Ready("a", round, 200);
    if (machine_->state() == State::kClosed) break;
    const TimePoint since = now_;
    Join(absl::StrCat("b", i + 1));
    const std::string other = absl::StrCat("b", i + 1);
    while (machine_->state() == State::kGathering) WaitAlive(seconds(1), {"a", other});
    waited += now_ - since;
    if (machine_->membership().Find(NodeId(other))->phase == Phase::kWaiting) {
      ReadyAll({"a"}, static_cast<int>(machine_->round()->value()));
    }
  }
  EXPECT_EQ(losses, 10);
  EXPECT_GE(waited, seconds(1 + 2 + 4 + 8 + 16 + 30));
  EXPECT_EQ(machine_->outcome(), Dismissal::kFailed);
  EXPECT_THAT(ToText(machine_->end()), HasSubstr("nodes were lost in 10 rounds in a row"));
}

TEST_F(RoundLossesTest, APauseEndsEvenWithTooFewNodes) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("a");
  for (const int round : {0, 1}) {
    const std::string other = absl::StrCat("b", round);
    Join(other);
    ASSERT_EQ(machine_->round(), Round(round));
    Killed(other);
    Ready("a", round, 200);
  }
  ASSERT_EQ(machine_->state(), State::kGathering);
  WaitAlive(seconds(3), {"a"});
  EXPECT_GT(*machine_->NextDeadline(), now_);
  EXPECT_EQ(Join("b2").size(), 2u);  // both nodes start
}

TEST_F(RoundLossesTest, AJobWhoseLastNodeIsDrainedIsNotDeserted) {
  Use({.min_nodes = 1, .max_nodes = 2, .first_last_call = seconds(0), .last_call = seconds(0)});
  Join("a");
  Killed("a");
  EXPECT_TRUE(machine_->deserted());
  Join("b");
  DrainNode("b");
  Ready("b", 1, 200);
  EXPECT_EQ(machine_->membership().size(), 0);
  EXPECT_FALSE(machine_->deserted());
}

TEST_F(RoundLossesTest, AHostThatFailsRepeatedlyIsExcluded) {
  Use({.min_nodes = 2, .max_nodes = 3, .max_restarts = 9, .exclude_after = 2});
  for (const char* id : {"a", "b", "c"}) Join(id);
  const Failure failure{.host = "host-c", .exit = Exited{1}, .cause = "rank 2 exit 1"};
  for (const int round : {0, 1}) {
    Failed("c", round, failure);
    ReadyAll({"a", "b", "c"}, round);
  }
  ASSERT_EQ(machine_->round(), Round(2));
  EXPECT_EQ(machine_->membership().in_round(), 2);
  EXPECT_EQ(machine_->membership().Find(NodeId("c"))->phase, Phase::kWaiting);
  EXPECT_TRUE(machine_->membership().Find(NodeId("c"))->excluded);
  // The excluded node does not interrupt the round.
  EXPECT_THAT(WaitAlive(seconds(100), {"a", "b", "c"}), IsEmpty());
}

TEST_F(RoundLossesTest, AnExcludedHostIsUsedIfItIsNeeded) {
  Use({.min_nodes = 2, .max_nodes = 2, .max_restarts = 9, .exclude_after = 1});
  Join("a");
  Join("b");
  Failed("b", 0, {.host = "host-b", .exit = Exited{1}, .cause = "rank 1 exit 1"});
  ReadyAll({"a", "b"}, 0);
  EXPECT_EQ(machine_->round(), Round(1));
  EXPECT_EQ(machine_->membership().in_round(), 2);
}

TEST_F(RoundLossesTest, AMinorityWaitsForTheOthers) {
  Use({.min_nodes = 1, .max_nodes = 3, .last_call = seconds(0), .quorum = Quorum::kMajority});
  for (const char* id : {"a", "b", "c"}) Join(id);
  Killed("b");
  Killed("c");
  Ready("a", 0, 200);
  EXPECT_EQ(machine_->state(), State::kGathering);
  EXPECT_THAT(WaitAlive(seconds(60), {"a"}), IsEmpty());
  EXPECT_EQ(Join("b2").size(), 2u);
}

TEST_F(RoundLossesTest, HalfOfTheNodesAreAQuorum) {
  Use({.min_nodes = 1, .max_nodes = 2, .quorum = Quorum::kMajority});
  Join("a");
  Join("b");
  Killed("b");
  EXPECT_EQ(Ready("a", 0, 200).size(), 2u);
}

TEST_F(RoundLossesTest, NodesThatLeaveDoNotCountTowardTheQuorum) {
  Use({.min_nodes = 1, .max_nodes = 3, .quorum = Quorum::kMajority});
  for (const char* id : {"a", "b", "c"}) Join(id);
  Leaving("b");
  Leaving("c");
  Ready("a", 0, 200);
  Left("b");
  EXPECT_EQ(Left("c").size(), 2u);
  EXPECT_EQ(machine_->round(), Round(1));
}

}  // namespace
}  // namespace ddprun
