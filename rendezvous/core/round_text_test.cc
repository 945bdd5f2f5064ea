#include "rendezvous/core/round_text.h"

#include "gtest/gtest.h"
#include "rendezvous/core/membership.h"

namespace ddprun {
namespace {

const NodeName kNode{NodeId("n7"), "host3"};

TEST(RoundTextTest, EachMissedReasonHasAnEventAndTexts) {
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
      {TooFewLeft{1, 4}, "too_few_left",
       "node host3 (n7) waits in vain: only 1 of at least 4 nodes are left, and no others can join; start "
       "the job again, or lower the minimum of --nnodes",
       "only 1 of at least 4 nodes are left, and no others can join; start the job again, or lower the "
       "minimum of --nnodes"},
  };
  for (const auto& row : kRows) {
    const NoteText text = ToText(Note(NodeMissed{kNode, row.why}));
    EXPECT_EQ(text.event, row.event);
    EXPECT_EQ(text.reason, row.reason);
    EXPECT_EQ(AbsenceText(row.why), row.absence);
  }
}

TEST(RoundTextTest, TheEndOfARoundNamesTheAwaitedSnapshot) {
  const TakenOut taken_out{kNode, "maintenance"};
  EXPECT_EQ(ToText(EndOfRound(SnapshotCame{taken_out, 40})),
            "node host3 (n7) is to be taken out: maintenance; a snapshot of step 40 is there");
  EXPECT_EQ(ToText(EndOfRound(NoSnapshotCame{NewcomersWait{2}, seconds(90)})),
            "2 nodes joined the running job; no snapshot came within 90 s");
}

TEST(RoundTextTest, ADismissalDescribesHowTheJobEnded) {
  EXPECT_EQ(ToText(DismissReason(JobIsClosed{AllSucceeded{}})), "the job is closed: it has succeeded");
  EXPECT_EQ(ToText(DismissReason(JobIsClosed{FailedForGood{"rank 0 failed", RestartsUsedUp{3}}})),
            "the job is closed: rank 0 failed; all 3 restarts are used up");
  EXPECT_EQ(ToText(DismissReason(JobIsClosing{HostLeaving{"SIGTERM"}})),
            "the job is being closed: the agent that hosts the coordinator is leaving: SIGTERM");
}

constexpr TimePoint kNow{seconds(1000)};
constexpr JobRules kThreeToFour{.min_nodes = 3, .max_nodes = 4};

std::string Gathering(int joined, const std::vector<AbsentNode>& absent) {
  return GatheringText(kThreeToFour, joined, absent, kNow, std::nullopt, kNow);
}

TEST(AbsentNodesTest, ListsExpectedAndLostNodes) {
  AbsentNodes absent;
  absent.Expect({});
  absent.Expect({"n3", "n1", "n2"});
  absent.Expect({"n9"});
  absent.Came("n1");
  absent.Came("n2");
  absent.Came("x");
  absent.Lost("n2", ConnectionLost{"it hung up"}, kNow);
  absent.Lost("x", LeaseExpired{}, kNow);
  EXPECT_EQ(absent.List(),
            (std::vector<AbsentNode>{
                {"n2", ConnectionLost{"it hung up"}, kNow}, {"n3"}, {"x", LeaseExpired{}, kNow}}));
  absent.Came("n2");
  absent.Went("n1");
  EXPECT_EQ(absent.List(), (std::vector<AbsentNode>{{"n1"}, {"n3"}, {"x", LeaseExpired{}, kNow}}));
  absent.Sealed();
  EXPECT_EQ(absent.List(), (std::vector<AbsentNode>{{"n1"}, {"n3"}}));
}

TEST(AbsentNodesTest, NodesOfOneHostAreCounted) {
  AbsentNodes absent;
  absent.Expect({"n1"});
  for (int i = 0; i < 3; ++i) absent.Came("n1");
  absent.Lost("n1", ConnectionLost{"first"}, kNow);
  absent.Lost("n1", ConnectionLost{"second"}, kNow);
  absent.Came("n1");
  EXPECT_EQ(absent.List(), (std::vector<AbsentNode>{{"n1", ConnectionLost{"second"}, kNow}}));
  absent.Sealed();
  absent.Went("n1");
  EXPECT_EQ(absent.List(), std::vector<AbsentNode>());
  absent.Went("n1");
  EXPECT_EQ(absent.List(), (std::vector<AbsentNode>{{"n1"}}));
}

TEST(AbsentNodesTest, AHostThatWasTakenOutIsNotExpected) {
  AbsentNodes absent;
  absent.Expect({"n1", "n2"});
  for (const char* host : {"n1", "n1", "n2"}) absent.Came(host);
  absent.TakenOut("n1");  // another node of n1 is present
  absent.TakenOut("n2");
  EXPECT_EQ(absent.List(), std::vector<AbsentNode>());
  absent.Went("n1");
  EXPECT_EQ(absent.List(), (std::vector<AbsentNode>{{"n1"}}));
  absent.Came("n1");
  absent.TakenOut("n1");
  absent.Expect({"n1", "n2"});  // from a node that joins later
  EXPECT_EQ(absent.List(), std::vector<AbsentNode>());
}

TEST(WaitingTextTest, NamesMissingNodes) {
  const AbsentNode silent{"n17"};
  const AbsentNode lost{"n3", LeaseExpired{}, kNow - seconds(12)};
  EXPECT_EQ(Gathering(1, {}), "1/4 nodes joined, waiting for at least 2 more (not heard from)");
  EXPECT_EQ(Gathering(2, {lost}), "2/4 nodes joined, waiting for n3 (lost 12 s ago: its lease expired)");
  EXPECT_EQ(Gathering(1, {silent}),
            "1/4 nodes joined, waiting for n17 (not heard from) and at least 1 more (not heard from)");
  EXPECT_EQ(Gathering(2, {silent, lost}),
            "2/4 nodes joined, waiting for at least 1 of n17 (not heard from), n3 (lost 12 s ago: its lease "
            "expired)");
  EXPECT_EQ(Gathering(3, {silent}),
            "3/4 nodes joined, enough to start; last call for 1 more: n17 (not heard from)");
  EXPECT_EQ(GatheringText(kThreeToFour, 2, {lost}, kNow - seconds(90), std::nullopt, kNow),
            "2/4 nodes joined, waiting for n3 (lost 12 s ago: its lease expired); for 90 s so far");
}

TEST(WaitingTextTest, TheNoticeNamesTheEndOfTheLastCallAndItsOption) {
  const auto with_left = [](Duration left) {
    return GatheringText(kThreeToFour, 3, {{"n17"}}, kNow, kNow + left, kNow);
  };
  EXPECT_EQ(
      with_left(milliseconds(29'990)),
      "3/4 nodes joined, enough to start; last call for 1 more: n17 (not heard from); the workers start in "
      "30 s at the latest (--rdzv-conf=last_call_timeout=SECONDS sets this time; a fixed --nnodes=N has "
      "none)");
  EXPECT_NE(with_left(seconds(1)).find("start in 1 s at the latest"), std::string::npos);
}

TEST(WaitingTextTest, ALongListEndsWithACount) {
  std::vector<AbsentNode> absent;
  for (int i = 0; i < 10; ++i) absent.push_back({std::string(1, static_cast<char>('a' + i))});
  EXPECT_EQ(ListOf(absent, kNow),
            "a (not heard from), b (not heard from), c (not heard from), d (not heard from), e (not heard "
            "from), f (not heard from), g (not heard from), h (not heard from) and 2 more");
}

TEST(WaitingTextTest, TheNoticeToSparesDescribesWhenTheyJoin) {
  EXPECT_EQ(SpareText(kThreeToFour, 4, 1),
            "the job runs on its maximum of 4 nodes; this node is a spare and takes over when one is lost");
  EXPECT_EQ(SpareText(kThreeToFour, 3, 1), "the job runs on 3 nodes; this node joins it at the next round");
  EXPECT_EQ(
      SpareText({.max_nodes = 4, .scale_up = ScaleUp::kNever}, 3, 1),
      "the job runs on 3 nodes; this node is a spare (--scale-up=never) and comes in when a round ends");
  EXPECT_EQ(SpareText({.max_nodes = 4, .scale_up = ScaleUp::kAtSnapshot}, 3, 1),
            "the job runs on 3 nodes; this node joins it at its next snapshot, which is asked for after the "
            "last call");
  EXPECT_EQ(
      SpareText({.min_nodes = 3, .max_nodes = 9, .node_unit = 3}, 3, 1),
      "the job runs on 3 nodes, a multiple of 3 (--node-unit); this node is a spare until 2 more nodes join");
  EXPECT_EQ(SpareText({.min_nodes = 3, .max_nodes = 9, .node_unit = 3}, 3, 4),
            "the job runs on 3 nodes; this node joins it at the next round");
}

}  // namespace
}  // namespace ddprun
