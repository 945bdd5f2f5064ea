#include "rendezvous/core/round_text.h"

#include "gtest/gtest.h"
#include "rendezvous/core/waiting_text.h"

namespace ddprun {
namespace {

const NodeName kNode{NodeId("n7"), "host3"};

TEST(RoundTextTest, EachWayToMissANodeHasItsEventAndItsWords) {
  const struct {
    MissedReason why;
    const char* event;
    const char* reason;
    const char* absence;
  } kRows[] = {
      {Left{"SIGTERM"}, "node_left", "node host3 (n7) left: SIGTERM", "it left: SIGTERM"},
      {ConnectionLost{"it hung up"}, "node_lost", "node host3 (n7) is lost: it hung up", "it hung up"},
      {AgentGone{}, "node_gone", "node host3 (n7): its agent has gone, and so have all its workers",
       "its agent was killed"},
      {Replaced{NodeId("n8")}, "node_replaced", "node host3 (n7) was replaced by its new start n8",
       "it was started anew"},
      {LeaseExpired{seconds(5), milliseconds(20)}, "lease_expired",
       "node host3 (n7) has not been heard from for 5000 ms: its lease expired 20 ms ago",
       "its lease expired"},
      {JoinTimedOut{seconds(600)}, "join_timeout", "node n7 waited 600 s", "it waited too long"},
      {StopTimedOut{Round(4)}, "stop_timeout", "node host3 (n7) did not stop its workers of round 4 in time",
       "it did not stop its workers"},
  };
  for (const auto& row : kRows) {
    const NoteText text = ToText(Note(NodeMissed{kNode, row.why}));
    EXPECT_EQ(text.event, row.event);
    EXPECT_EQ(text.reason, row.reason);
    EXPECT_EQ(AbsenceText(row.why), row.absence);
  }
}

TEST(RoundTextTest, TheEndOfARoundNamesWhatItWaitedFor) {
  const TakenOut taken_out{kNode, "maintenance"};
  EXPECT_EQ(ToText(EndOfRound(SnapshotCame{taken_out, 40})),
            "node host3 (n7) is to be taken out: maintenance; a snapshot of step 40 is there");
  EXPECT_EQ(ToText(EndOfRound(NoSnapshotCame{NewcomersWait{2}, seconds(90)})),
            "2 nodes joined the running job; no snapshot came within 90 s");
}

TEST(RoundTextTest, ALateNodeHearsHowTheJobEnded) {
  EXPECT_EQ(ToText(DismissReason(JobIsClosed{AllSucceeded{}})), "the job is closed: it has succeeded");
  EXPECT_EQ(ToText(DismissReason(JobIsClosed{FailedForGood{"rank 0 failed", RestartsUsedUp{3}}})),
            "the job is closed: rank 0 failed; all 3 restarts are used up");
  EXPECT_EQ(ToText(DismissReason(JobIsClosing{HostLeaving{"SIGTERM"}})),
            "the job is being closed: the agent that hosts the coordinator is leaving: SIGTERM");
}

}  // namespace
}  // namespace ddprun
