// Changes of the voters. For reads and writes while they stay the same see proposer_test.cc.
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/testing/proposer_fixture.h"

namespace ddprun {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class ProposerVotersTest : public ProposerFixture {
 protected:
  void SetUp() override { Write(0, "L1", "C"); }
  // Swaps with candidates of which only these answer, until the swap has proposed a set of voters. Returns that set.
  std::string Proposes(const std::string& candidates, const std::string& answering, int64_t version = 1) {
    Swap(version, "L", {}, candidates);
    DeliverProbes(answering);
    while (!Proposed() && me_->busy()) Wait();
    return Text(Last("a").record->voters);
  }
  void DeliverProbes(const std::string& addresses) {
    for (const std::string& address : List(addresses)) {
      if (Pending(address) && Last(address).kind == VoteRequest::Kind::kAsk) Deliver(address);
    }
  }
  bool Proposed() const { return Pending("a") && Last("a").kind == VoteRequest::Kind::kAccept; }
  std::string TieBreaker() { return me_->voters().now.tie_breaker; }
};

TEST_F(ProposerVotersTest, ProbeThenBothGroupsThenTheNewOne) {
  Swap(1, "L2", {}, "a d e");
  EXPECT_EQ(Sent(), "ask a d e");
  EXPECT_EQ(Last("d").voter, "") << "whichever process is there";
  Deliver("a d e");
  EXPECT_EQ(Sent(), "accept a d e b c");
  EXPECT_EQ(Text(Last("d").record->voters), "2: a d e before a b c");
  EXPECT_EQ(Last("d").voter, "d1");

  Deliver("a b");  // a quorum of the old ones, not of the new ones
  Deliver("d");    // lacks the charter
  EXPECT_EQ(Sent(), "accept d");
  EXPECT_EQ(Known(), "1: a b c");
  Deliver("d");
  EXPECT_EQ(Sent(), "accept a d e b c");
  EXPECT_EQ(Text(Last("d").record->voters), "2: a d e");

  Deliver("a d");  // of the new ones alone
  EXPECT_EQ(Result(), "");
  Deliver("b");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Known(), "2: a d e");
  EXPECT_EQ(TieBreaker(), "a1");
  EXPECT_EQ(Has("d"), "2 L2 C");

  Sent();
  Swap(2, "L3");
  EXPECT_EQ(Sent(), "accept a d e");
}

TEST_F(ProposerVotersTest, TheOldVotersAloneDoNotDecide) {
  Swap(1, "L2", {}, "d e f");
  DeliverProbes("d e");
  while (!Proposed()) Wait();
  DeliverAll("a b c e");
  EXPECT_EQ(Result(), "");
  EXPECT_EQ(Known(), "1: a b c");
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Known(), "2: d e");
}

TEST_F(ProposerVotersTest, TheSameCandidatesChangeNothing) {
  EXPECT_EQ(Proposes("a b c", "a b c"), "1: a b c");
}

TEST_F(ProposerVotersTest, AtMostFiveCandidatesAreAsked) {
  Swap(1, "L2", {}, "a b c d e f g");
  EXPECT_EQ(Sent(), "ask a b c d e");
}

TEST_F(ProposerVotersTest, ASilentCandidateIsLeftOutAndAskedLessAndLessOften) {
  EXPECT_EQ(Proposes("a b d e", "a b e"), "2: a b e before a b c");
  DeliverAll("a b c e");
  EXPECT_EQ(Result(), "swapped 2 L C");
  Sent();
  Swap(2, "L3", {}, "a b d e f");
  EXPECT_EQ(Sent(), "ask a b e f");
  DeliverAll("a b e f");
  EXPECT_EQ(Result(), "swapped 3 L3 C");
  Sent();
  int64_t version = 3;
  for (const int pause_s : {1, 2, 4, 8, 16, 32, 60, 60}) {
    now_ += seconds(pause_s) - milliseconds(500);
    for (const char* const asked : {"ask a b e f", "ask a b d e f"}) {
      Swap(version, "L", {}, "a b d e f");
      EXPECT_EQ(Sent(), asked) << pause_s;
      DeliverProbes("a b e f");
      while (!Proposed()) Wait();
      DeliverAll("a b e f");
      EXPECT_THAT(Result(), ::testing::StartsWith("swapped"));
      ++version;
      Sent();
      now_ += milliseconds(500);
    }
    now_ -= milliseconds(500);
  }
}

TEST_F(ProposerVotersTest, ASilentVoterIsKeptIfAQuorumHasAnswered) {
  EXPECT_EQ(Proposes("a b c d e", "a b d"), "2: a b c d before a b c");
}

TEST_F(ProposerVotersTest, ASilentVoterIsAskedEachTime) {
  EXPECT_EQ(Proposes("a b c d", "a b d"), "2: a b c d before a b c");
  DeliverAll("a b d");
  EXPECT_EQ(Result(), "swapped 2 L C");
  Sent();
  Swap(2, "L3", {}, "a b c d");
  EXPECT_EQ(Sent(), "ask a b c d");
}

TEST_F(ProposerVotersTest, TheVotersStayIfNoQuorumOfTheNewOnesHasAnswered) {
  EXPECT_EQ(Proposes("a b c d e", "a"), "1: a b c");
  DeliverAll("a b c");
  EXPECT_EQ(Result(), "swapped 2 L C");
  // Nor does the next change remove them without asking.
  EXPECT_EQ(Proposes("a b c", "a", 2), "1: a b c");
}

// The timer is due before the answers are read.
TEST_F(ProposerVotersTest, TheAnswersAreReadAfterASuspensionOfThisProcess) {
  Swap(1, "L2", {}, "a d e");
  After(milliseconds(900));
  Deliver("a d e");
  EXPECT_EQ(Text(Last("a").record->voters), "2: a d e before a b c");
}

TEST_F(ProposerVotersTest, ASilentCandidateLeavesTimeForTheAccept) {
  Swap(1, "L2", {}, "a b c d", milliseconds(100));
  DeliverAll("a b c");
  Wait();
  Wait();
  DeliverAll("a b c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerVotersTest, AFailedProbeIsRepeated) {
  Swap(1, "L2", {}, "a b d");
  Fail("d");
  After(milliseconds(20));
  Deliver("a b d");
  EXPECT_EQ(Text(Last("a").record->voters), "2: a b d before a b c");
}

TEST_F(ProposerVotersTest, AProcessWithTwoAddressesIsOneVoter) {
  Swap(1, "L2", {}, "a d e a f");
  EXPECT_EQ(Sent(), "ask a d e f");
  const VoteReply reply = Vote("d", Last("d")).value();
  Deliver("a d");
  // At address e is d1, too.
  AnswerAs("e", reply);
  Deliver("f");
  EXPECT_EQ(Text(Last("a").record->voters), "2: a d f before a b c");
}

TEST_F(ProposerVotersTest, AnotherProcessAtTheAddressOfAVoterReplacesIt) {
  Start("c", 2);
  EXPECT_EQ(Proposes("a b c", "a b c"), "2: a b c before a b c");
  EXPECT_EQ(Last("a").record->voters.now.voters[2].id, "c2");
  EXPECT_EQ(Last("a").record->voters.before->voters[2].id, "c1");
}

// --- Hand-over

TEST_F(ProposerVotersTest, HandOverToAGroupWithoutThisProcess) {
  Write(1, "L2", {}, "d e f");
  EXPECT_EQ(Known(), "2: d e f");
  EXPECT_EQ(TieBreaker(), "d1");
  EXPECT_EQ(Has("d"), "2 L2 C");
  Read();
  EXPECT_EQ(Sent(), "ask d e f");
  Deliver("d e");
  EXPECT_EQ(Result(), "found 2 L2 C");
}

TEST_F(ProposerVotersTest, TheTieBreakerHasAnswered) {
  Swap(1, "L2", {}, "b c");
  DeliverProbes("c");
  Wait();
  Wait();
  EXPECT_EQ(Text(Last("a").record->voters), "2: b c before a b c");
  EXPECT_EQ(Last("a").record->voters.now.tie_breaker, "c1");
}

// --- Interrupted changes

TEST_F(ProposerVotersTest, AReaderCompletesAChange) {
  Swap(1, "L2", {}, "a d e");
  Deliver("a d e");
  LoseAnswer("a b");
  After(kLimit);
  EXPECT_THAT(Result(), HasSubstr("no quorum"));

  EXPECT_EQ(Other("a b c d e"), "L2");
  ASSERT_EQ(Has("d"), "2 L2 C");
  EXPECT_EQ(Text(Vote("d", {})->record->voters), "2: a d e");
  EXPECT_EQ(Known(), "1: a b c");
  Read();
  DeliverAll();
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Known(), "2: a d e");
}

TEST_F(ProposerVotersTest, AReadNeedsTheNewVotersAsWell) {
  Swap(1, "L2", {}, "a d e");
  Deliver("a d e");
  LoseAnswer("a b c");
  After(kLimit);
  Result();
  Sent();
  Read();
  Deliver("a b c");
  EXPECT_EQ(Sent(), "ask a b c d e");
  After(milliseconds(100));
  EXPECT_EQ(Result(), "") << "all of a quorum of the old ones agree";
}

TEST_F(ProposerVotersTest, PrepareNeedsTheNewVotersAsWell) {
  Swap(1, "L2", {}, "a d e");
  Deliver("a d e");
  LoseAnswer("a b c");
  After(kLimit);
  Result();
  Sent();
  Swap(2, "L3");
  AskUntilPrepare("a b c d e");
  EXPECT_THAT(Sent(), EndsWith("prepare a b c"));
  Deliver("a b c");
  EXPECT_EQ(Sent(), "prepare d e");
  Deliver("d");
  EXPECT_THAT(Sent(), HasSubstr("accept"));
  EXPECT_EQ(Text(Last("d").record->voters), "2: a d e before a b c");
}

// --- Voters that have left, or are proven to have exited

class ProposerEndedTest : public ProposerVotersTest {
 protected:
  // This process leads for another second, and has heard that processes have ended.
  void SwapAsLeader(int64_t version, const std::string& lead, const std::string& ended,
                    const std::string& candidates = "") {
    Step(SwapWanted{.expected = {.version = version, .exists = true},
                    .lead = lead,
                    .candidates = List(candidates),
                    .leads_until = now_ + seconds(1),
                    .ended = List(ended),
                    .end = now_ + kLimit});
  }
  void Exited(const std::string& addresses) { Fail(addresses, absl::NotFoundError("refused")); }
};

TEST_F(ProposerEndedTest, TheLeaderDecidesAloneWhenTheOthersHaveEnded) {
  SwapAsLeader(1, "L2", "b c");
  Deliver("a");
  Exited("b");
  EXPECT_EQ(Result(), "");
  Exited("c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerEndedTest, AVoterThatIsAliveIsNotOverruled) {
  SwapAsLeader(1, "L2", "b c");
  Deliver("a");
  Exited("b");
  Fail("c", absl::UnavailableError("no route"));
  EXPECT_EQ(Result(), "");
  After(kLimit);
  EXPECT_THAT(Result(), HasSubstr("1 of 3 have answered"));
}

TEST_F(ProposerEndedTest, ARefusedConnectionAloneIsNoProof) {
  SwapAsLeader(1, "L2", "b");
  Deliver("a");
  Exited("b c");
  EXPECT_THAT(Result(), HasSubstr("have exited (b, c)"));
}

TEST_F(ProposerEndedTest, AProcessThatDoesNotLeadDoesNotDecideAlone) {
  Step(SwapWanted{
      .expected = {.version = 1, .exists = true}, .lead = "L2", .ended = List("b c"), .end = now_ + kLimit});
  Deliver("a");
  Exited("b c");
  EXPECT_THAT(Result(), HasSubstr("have exited (b, c)"));
}

TEST_F(ProposerEndedTest, ALeaderDoesNotDecideAloneAfterItsLead) {
  SwapAsLeader(1, "L2", "b c");
  Deliver("a");
  Exited("b");
  After(seconds(1));
  Exited("c");
  EXPECT_THAT(Result(), HasSubstr("have exited (b, c)"));
}

// The others have chosen a record that this process has not accepted.
TEST_F(ProposerEndedTest, ALeaderWhoseOwnVoteIsBehindDoesNotDecideAlone) {
  OtherPrepares("a");
  SwapAsLeader(1, "L2", "");
  Deliver("a b c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  SwapAsLeader(2, "L3", "b c");
  Deliver("a");
  Exited("b c");
  EXPECT_THAT(Result(), HasSubstr("have exited (b, c)"));
}

TEST_F(ProposerEndedTest, TheVotersAreThoseThatAreLeft) {
  SwapAsLeader(1, "L2", "b c", "a");
  while (Pending("a") || Pending("b") || Pending("c")) {
    if (Pending("a")) Deliver("a");
    for (const std::string address : {"b", "c"}) {
      if (Pending(address)) Exited(address);
    }
  }
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Known(), "2: a");
  Swap(2, "L3");
  DeliverAll("a");
  EXPECT_EQ(Result(), "swapped 3 L3 C");
}

TEST_F(ProposerVotersTest, NewerVotersAreFoundByAskingTheOldOnes) {
  EXPECT_EQ(Other("a b c d e f", "L2", "d e f"), "swapped");
  Swap(2, "L3");
  DeliverAll("b c d e");
  EXPECT_EQ(Result(), "swapped 3 L3 C");
  EXPECT_EQ(Known(), "2: d e f");
}

// Voters of a set that was replaced may have exited.
TEST_F(ProposerVotersTest, ASetWithBothGroupsShowsThatTheOldOneWasChosen) {
  Write(1, "L2", {}, "a d e");
  Swap(2, "L3", {}, "a d f");
  Deliver("a d f");
  LoseAnswer("a d");
  After(kLimit);
  Result();

  Know("a b c");
  Read();
  DeliverAll("a d f");
  EXPECT_EQ(Known(), "2: a d e");
  EXPECT_EQ(Result(), "found 3 L3 C");
}

}  // namespace
}  // namespace ddprun
