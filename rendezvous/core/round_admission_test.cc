// Jobs whose nodes are all started by a scheduler: a node that has left is not waited for.
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

using ::testing::Contains;

class RoundAdmissionTest : public RoundMachineTest {
 protected:
  void SetUp() override { UseAdmission(Admission::kExpected); }

  void UseAdmission(Admission admission) {
    Use({.min_nodes = 3,
         .max_nodes = 4,
         .last_call = seconds(10),
         .lease = seconds(5),
         .admission = admission});
  }
  // Nodes a, b, c and d are expected.
  void JoinSome(std::initializer_list<const char*> ids) {
    for (const std::string id : ids) {
      NodeInfo info{
          .id = NodeId(id), .host = "host-" + id, .addr = "addr-" + id, .store_port = 100, .nproc = 1};
      Step(NodeJoined{std::move(info), {"host-a", "host-b", "host-c", "host-d"}});
    }
  }
  void StartWithAll() {
    JoinSome({"a", "b", "c", "d"});
    ASSERT_EQ(machine_->round(), Round(0));
  }
};

TEST_F(RoundAdmissionTest, IfEnoughAreLeftTheNextRoundStartsWithoutLastCall) {
  StartWithAll();
  Left("d");
  Ready("a", 0, 200);
  Ready("b", 0, 201);
  Ready("c", 0, 202);
  EXPECT_EQ(machine_->round(), Round(1));
}

TEST_F(RoundAdmissionTest, IfTooFewAreLeftTheyDoNotWait) {
  StartWithAll();
  Left("c");
  Left("d");
  Ready("a", 0, 200);
  EXPECT_THAT(Ready("b", 0, 201),
              ElementsAre("a:report r0", "b:report r0", "a:dismiss join timeout", "b:dismiss join timeout"));
  EXPECT_EQ(DismissalText("a"),
            "only 2 of at least 3 nodes are left, and no others can join; start the job again, or lower the "
            "minimum of --nnodes");
  EXPECT_EQ(machine_->membership().size(), 0);
}

TEST_F(RoundAdmissionTest, ANodeWhoseAgentWasKilledIsNotWaitedFor) {
  StartWithAll();
  Killed("c");
  Killed("d");
  Ready("a", 0, 200);
  EXPECT_THAT(Ready("b", 0, 201), Contains("a:dismiss join timeout"));
}

TEST_F(RoundAdmissionTest, ANodeThatWasDrainedIsNotWaitedFor) {
  StartWithAll();
  Left("d");
  DrainNode("c");
  for (const char* id : {"a", "b", "c"}) Ready(id, 0, 200);
  EXPECT_THAT(machine_->membership().members(), IsEmpty());
}

TEST_F(RoundAdmissionTest, ANodeThatWasLostIsWaitedFor) {
  StartWithAll();
  Left("d");
  Lost("c");
  Ready("a", 0, 200);
  Ready("b", 0, 201);
  WaitAlive(seconds(60), {"a", "b"});
  EXPECT_EQ(machine_->membership().count(Phase::kWaiting), 2);
  EXPECT_THAT(Left("b"), ElementsAre("a:dismiss join timeout")) << "c alone would not be enough";
}

TEST_F(RoundAdmissionTest, ANodeThatHasNotJoinedIsWaitedFor) {
  JoinSome({"a", "b"});
  EXPECT_THAT(Left("b"), IsEmpty());
  EXPECT_EQ(machine_->membership().size(), 1);
}

TEST_F(RoundAdmissionTest, APreemptedNodeIsWaitedForIfItReturns) {
  for (const bool returns : {false, true}) {
    UseAdmission(Admission::kExpected);
    StartWithAll();
    Left("d");
    for (const char* id : {"a", "b", "c"}) Ready(id, 0, 200);
    ASSERT_EQ(machine_->round(), Round(1));
    GiveNotice("c", seconds(60), returns ? std::optional<Duration>(seconds(300)) : std::nullopt);
    for (const char* id : {"a", "b", "c"}) Succeeded(id, 1);
    for (const char* id : {"a", "b", "c"}) Ready(id, 1, 200);
    EXPECT_EQ(machine_->membership().count(Phase::kWaiting), returns ? 2 : 0);
  }
}

TEST_F(RoundAdmissionTest, AnOpenJobWaitsForOtherNodes) {
  UseAdmission(Admission::kOpen);
  StartWithAll();
  Left("c");
  Left("d");
  Ready("a", 0, 200);
  Ready("b", 0, 201);
  EXPECT_EQ(machine_->membership().count(Phase::kWaiting), 2);
}

}  // namespace
}  // namespace ddprun
