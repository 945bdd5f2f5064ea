// The coordinator moves to another process, and its job goes on there.

#include <string>

#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

constexpr JobRules kRules{.min_nodes = 1,
                          .max_nodes = 4,
                          .max_restarts = 1,
                          .first_last_call = seconds(30),
                          .last_call = seconds(10),
                          .join_timeout = seconds(600),
                          .lease = seconds(5)};

class RoundHandOverTest : public RoundMachineTest {
 protected:
  // The node a hosts the coordinator, and has a lease.
  void JoinHost() {
    Step(NodeJoined{
        {.id = NodeId("a"), .host = "host-a", .addr = "addr-a", .store_port = 100, .hosts = true}});
  }
  // Round 0 of the nodes a, b and c.
  void RunRound(JobRules rules = kRules) {
    rules.max_nodes = 3;
    Use(rules);
    JoinHost();
    Join("b");
    Join("c");
    ASSERT_EQ(machine_->state(), State::kRunning);
  }
  Words HandOver() { return Step(HandOverRequested{"its process exits"}); }
  // The position of HandOver among the effects of the last step, and of the first dismissal with kMoved; -1: none.
  int HandOverAt() const {
    return Find([](const RoundEffect& e) { return std::holds_alternative<ddprun::HandOver>(e); });
  }
  int MovedAt() const {
    return Find([](const RoundEffect& e) {
      const auto* dismiss = std::get_if<Dismiss>(&e);
      return dismiss != nullptr && dismiss->reason == Dismissal::kMoved;
    });
  }
  template <typename F>
  int Find(F f) const {
    const auto it = std::find_if(last_.begin(), last_.end(), f);
    return it == last_.end() ? -1 : static_cast<int>(it - last_.begin());
  }
  bool Forgets() const {
    return std::get<ddprun::HandOver>(last_.at(static_cast<size_t>(HandOverAt()))).forget;
  }
};

// No other node can come, so the next coordinator would wait in vain.
TEST_F(RoundHandOverTest, NodesThatAreTooFewAreDismissedInsteadOfMoved) {
  JobRules rules = kRules;
  rules.min_nodes = rules.max_nodes = 3;
  rules.admission = Admission::kExpected;
  Use(rules);
  Step(NodeJoined{{.id = NodeId("a"), .host = "host-a", .addr = "addr-a", .store_port = 100, .hosts = true},
                  {"host-a", "host-b", "host-c"}});
  Join("b");
  Join("c");
  ASSERT_EQ(machine_->state(), State::kRunning);
  Leaving("b");
  Leaving("a");
  Ready("c", 0, 1);
  Left("b");
  EXPECT_THAT(Left("a"), ElementsAre("c:report r0", "c:dismiss join timeout"));
  EXPECT_EQ(MovedAt(), -1);
  EXPECT_TRUE(Forgets());
}

TEST_F(RoundHandOverTest, AHostThatLeavesEndsTheRoundAndTheOthersMove) {
  RunRound();
  EXPECT_THAT(Leaving("a"), ElementsAre("a:stop r0 for good", "b:stop r0 for good", "c:stop r0 for good"));
  EXPECT_THAT(StopReason(), HasSubstr("its agent received SIGTERM"));
  Ready("b", 0, 1);
  Left("a");
  EXPECT_EQ(machine_->state(), State::kDraining);
  EXPECT_THAT(Ready("c", 0, 1),
              ElementsAre("b:report r0", "c:report r0", "b:dismiss moved", "c:dismiss moved"));
  EXPECT_THAT(DismissalText("c"), HasSubstr("the coordinator moves to another host: node host-a (a)"));
  EXPECT_LT(HandOverAt(), MovedAt());
  EXPECT_GE(HandOverAt(), 0);
  EXPECT_FALSE(Forgets());
  EXPECT_EQ(machine_->state(), State::kHandedOver);
  EXPECT_EQ(machine_->restarts(), 0);
  // The host has left, so the next coordinator does not wait for it.
  EXPECT_EQ(machine_->charter().electorate, (std::multiset<std::string>{"host-b", "host-c"}));
}

TEST_F(RoundHandOverTest, TheNextCoordinatorSealsWhenTheOthersHaveJoined) {
  RunRound();
  Leaving("a");
  Left("a");
  Ready("b", 0, 1);
  Ready("c", 0, 1);
  const Charter charter = machine_->charter();
  RoundEffects notes;
  machine_.emplace(charter, Takeover::kHandedOver, now_, notes);
  const auto back = [&](const std::string& id, int rank) {
    return Step(NodeJoined{{.id = NodeId(id),
                            .host = "host-" + id,
                            .addr = "addr-" + id,
                            .store_port = 100,
                            .last = LastPlace{Round(0), GroupRank(rank), Rank(rank)}}});
  };
  EXPECT_THAT(back("c", 2), IsEmpty());
  EXPECT_THAT(back("b", 1), ElementsAre("b:start r1 node0/2 rank0/2 n0 addr-b:100",
                                        "c:start r1 node1/2 rank1/2 n0 addr-b:100"));
}

TEST_F(RoundHandOverTest, ANodeThatIsNotTheHostLeavesWithoutAMove) {
  RunRound();
  Leaving("b");
  Left("b");
  Ready("a", 0, 1);
  EXPECT_THAT(Ready("c", 0, 1),
              ElementsAre("a:report r0", "c:report r0", "a:start r1 node0/2 rank0/2 n0 addr-a:1",
                          "c:start r1 node1/2 rank1/2 n0 addr-a:1"));
}

TEST_F(RoundHandOverTest, AHostWithoutALeaseDoesNotMove) {
  Use(kRules);
  Step(NodeJoined{{.id = NodeId("a"),
                   .host = "host-a",
                   .addr = "addr-a",
                   .store_port = 100,
                   .hosts = true,
                   .leased = false}});
  Join("b");
  Left("a");
  EXPECT_EQ(HandOverAt(), -1);
}

TEST_F(RoundHandOverTest, AHostThatIsDrainedMoves) {
  RunRound();
  EXPECT_THAT(DrainNode("a"), ElementsAre("a:stop r0 for good", "b:stop r0", "c:stop r0"));
  Ready("b", 0, 1);
  Ready("c", 0, 1);
  EXPECT_THAT(Ready("a", 0, 1), ElementsAre("a:dismiss drained", "b:dismiss moved", "c:dismiss moved"));
}

TEST_F(RoundHandOverTest, AHostThatIsPreemptedMoves) {
  RunRound();
  EXPECT_THAT(GiveNotice("a"), ElementsAre("a:snapshot r0 and stop and leave", "b:snapshot r0 and stop",
                                           "c:snapshot r0 and stop"));
  Snapshot("b", 0, 10);
  for (const char* id : {"a", "b", "c"}) Succeeded(id, 0);
  ASSERT_EQ(machine_->state(), State::kDraining);
  Ready("b", 0, 1);
  Ready("c", 0, 1);
  EXPECT_THAT(Ready("a", 0, 1), ElementsAre("a:dismiss pre-empted", "b:dismiss moved", "c:dismiss moved"));
  EXPECT_FALSE(Forgets());
}

TEST_F(RoundHandOverTest, WaitingNodesMoveAtOnce) {
  Use({.min_nodes = 3, .max_nodes = 3});
  JoinHost();
  Join("b");
  EXPECT_THAT(Left("a"), ElementsAre("b:dismiss moved"));
  EXPECT_LT(HandOverAt(), MovedAt());
}

TEST_F(RoundHandOverTest, ARequestMovesTheCoordinatorInEachState) {
  Use(kRules);
  Join("b");
  EXPECT_THAT(HandOver(), ElementsAre("b:dismiss moved"));

  RunRound();
  EXPECT_THAT(HandOver(), ElementsAre("a:stop r0 for good", "b:stop r0 for good", "c:stop r0 for good"));
  for (const char* id : {"a", "b"}) Ready(id, 0, 1);
  EXPECT_THAT(Ready("c", 0, 1), ElementsAre("a:dismiss moved", "b:dismiss moved", "c:dismiss moved"));

  RunRound();
  Failed("b", 0);
  ASSERT_EQ(machine_->state(), State::kDraining);
  EXPECT_THAT(HandOver(), ElementsAre("a:stop r0 for good", "b:stop r0 for good", "c:stop r0 for good"));
  EXPECT_THAT(HandOver(), IsEmpty());
}

TEST_F(RoundHandOverTest, AFailureBeforeTheMoveIsCharged) {
  RunRound();
  Failed("b", 0);
  HandOver();
  for (const char* id : {"a", "b"}) Ready(id, 0, 1);
  Ready("c", 0, 1);
  EXPECT_EQ(machine_->state(), State::kHandedOver);
  EXPECT_EQ(machine_->charter().restarts, 1);
}

TEST_F(RoundHandOverTest, AFailureThatEndsTheJobEndsIt) {
  JobRules rules = kRules;
  rules.max_restarts = 0;
  RunRound(rules);
  Failed("b", 0);
  HandOver();
  for (const char* id : {"a", "b"}) Ready(id, 0, 1);
  Ready("c", 0, 1);
  EXPECT_EQ(machine_->state(), State::kClosed);
  EXPECT_EQ(HandOverAt(), -1);
}

TEST_F(RoundHandOverTest, AHostThatIsASpareEndsTheRoundWhenItLeaves) {
  Use({.min_nodes = 2, .max_nodes = 2});
  Join("b");
  Join("c");
  JoinHost();
  ASSERT_EQ(machine_->membership().At(NodeId("a")).phase, Phase::kWaiting);
  EXPECT_THAT(Left("a"), ElementsAre("b:stop r0 for good", "c:stop r0 for good"));
  Ready("b", 0, 1);
  EXPECT_THAT(Ready("c", 0, 1), ElementsAre("b:dismiss moved", "c:dismiss moved"));
}

TEST_F(RoundHandOverTest, ANodeThatIsLostIsWaitedFor) {
  RunRound();
  Lost("c");
  Leaving("a");
  Left("a");
  Ready("b", 0, 1);
  EXPECT_EQ(machine_->state(), State::kDraining);
  EXPECT_THAT(WaitAlive(seconds(6), {"b"}), ::testing::IsSupersetOf({"b:report r0", "b:dismiss moved"}));
}

TEST_F(RoundHandOverTest, AJobThatAllHaveLeftIsForgotten) {
  Use(kRules);
  JoinHost();
  Left("a");
  EXPECT_TRUE(Forgets());
}

TEST_F(RoundHandOverTest, AJobWithALostNodeIsNotForgotten) {
  RunRound();
  Killed("b");
  Killed("c");
  Leaving("a");
  Left("a");
  EXPECT_FALSE(Forgets());
}

TEST_F(RoundHandOverTest, NodesThatJoinLaterMoveToo) {
  Use(kRules);
  Join("b");
  HandOver();
  EXPECT_THAT(Join("c"), ElementsAre("c:dismiss moved"));
}

TEST_F(RoundHandOverTest, AStopIsInTheCharterBeforeTheWorkersHaveStopped) {
  RunRound();
  const int64_t version = machine_->charter_version();
  CloseJob();
  ASSERT_EQ(machine_->state(), State::kDraining);
  ASSERT_TRUE(machine_->charter().end.has_value());
  EXPECT_EQ(machine_->charter().end->outcome, Dismissal::kStopped);
  EXPECT_GT(machine_->charter_version(), version);
}

TEST_F(RoundHandOverTest, AJobThatIsBeingStoppedDoesNotMove) {
  RunRound();
  CloseJob();
  HandOver();
  for (const char* id : {"a", "b"}) Ready(id, 0, 1);
  Ready("c", 0, 1);
  EXPECT_EQ(machine_->state(), State::kClosed);
}

}  // namespace
}  // namespace ddprun
