// Reads and writes while the voters stay the same. For changes of the voters see proposer_voters_test.cc; for charters, errors and
// repeated requests proposer_requests_test.cc.
#include "rendezvous/voters/proposer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/testing/proposer_fixture.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProposerTest : public ProposerFixture {
 protected:
  // All voters have "1 L1 C". Only these accept "2 L2 C", and their answers are lost.
  void InterruptWrite(const std::string& reached) {
    Write(0, "L1", "C");
    Swap(1, "L2");
    LoseAnswer(reached);
    After(kLimit);
    Result();
    Sent();
  }
};

// --- Reads

TEST_F(ProposerTest, WithoutKnownVotersACallFailsAtOnce) {
  me_ = std::make_unique<Proposer>(ProposerRules{}, VoterSet{});
  Read();
  EXPECT_THAT(Result(), HasSubstr("no voter of the job is known"));
  Swap(0, "L");
  EXPECT_THAT(Result(), HasSubstr("no voter of the job is known"));
}

TEST_F(ProposerTest, ReadWithAgreementTakesOneRoundTrip) {
  Write(0, "L1", "C");
  Read();
  EXPECT_EQ(Sent(), "ask a b c");
  Deliver("a");
  EXPECT_EQ(Result(), "");
  Deliver("c");
  EXPECT_EQ(Result(), "found 1 L1 C");
  EXPECT_EQ(me_->NextDeadline(), std::nullopt);
}

TEST_F(ProposerTest, ReadBeforeTheFirstWrite) {
  Read();
  Deliver("a b");
  EXPECT_EQ(Result(), "found none");
}

TEST_F(ProposerTest, ReadOfAWriteThatOnlyOneVoterHasIsNoAgreement) {
  InterruptWrite("a");

  Read();
  Deliver("a b");
  EXPECT_EQ(Result(), "");
  Deliver("c");  // each quorum either differs or is not the newest
  EXPECT_EQ(Result(), "");
}

TEST_F(ProposerTest, ReadWhoseVotersDifferWritesTheNewestBack) {
  InterruptWrite("a");

  Read();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Sent(), "ask a b c");
    Deliver("a b c");
    EXPECT_EQ(Sent(), "");
    Wait();
  }
  EXPECT_EQ(Sent(), "ask a b c");
  Deliver("a b c");
  EXPECT_EQ(Sent(), "prepare a b c");
  Deliver("a b");
  EXPECT_EQ(Sent(), "accept a b c");
  Deliver("b");
  EXPECT_EQ(Result(), "");
  Deliver("a");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Has("b"), "2 L2 C");
}

TEST_F(ProposerTest, ReadWaitsForTheOthersAsLongAsForTheQuorum) {
  InterruptWrite("a c");  // b does not have the write

  Read();
  After(milliseconds(50));
  Deliver("a b");
  EXPECT_EQ(me_->NextDeadline(), now_ + milliseconds(50));
  After(milliseconds(45));
  Deliver("c");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Sent(), "ask a b c");
}

TEST_F(ProposerTest, ReadWaitsForAVoterThatHasExitedNoLonger) {
  InterruptWrite("a");

  Read();
  After(milliseconds(50));
  Fail("c", absl::NotFoundError("exited"));
  Deliver("a b");
  Sent();
  EXPECT_EQ(me_->NextDeadline(), now_ + milliseconds(50)) << "the pause";
  Wait();
  EXPECT_EQ(Sent(), "ask a b c");
}

TEST_F(ProposerTest, VotersThatDifferAreAskedAgainAfterTheTimeOfTwoAnswers) {
  InterruptWrite("a");

  Read();
  After(milliseconds(50));
  Deliver("a b");
  After(milliseconds(10));
  Deliver("c");
  Sent();
  EXPECT_EQ(me_->NextDeadline(), now_ + milliseconds(40));
  Wait();
  EXPECT_EQ(Sent(), "ask a b c");
}

// On a slow network, a read may have time for one question only.
TEST_F(ProposerTest, ReadsThatAreTooShortWriteTheNewestBackTogether) {
  InterruptWrite("a");

  for (int i = 0; i < 4; ++i) {
    Read();
    EXPECT_EQ(Sent(), "ask a b c");
    After(kLimit / 2);
    Deliver("a b");
    After(kLimit * 2 / 5);
    Deliver("c");
    EXPECT_EQ(Sent(), i < 3 ? "" : "prepare a b c");
    After(kLimit / 5);
    EXPECT_THAT(Result(), HasSubstr(i < 3 ? "no quorum of the job's voters: the voters have different records"
                                          : "no quorum of the job's voters: 0 of 3 have answered"));
  }
  Read();
  Deliver("a b");
  EXPECT_EQ(Sent(), "ask a b c, prepare a b c");
  Deliver("a b");
  Deliver("a b");
  EXPECT_EQ(Result(), "found 2 L2 C");
}

// The count goes on over several reads, so a leader that writes must restart it.
TEST_F(ProposerTest, ReadsDoNotCompeteWhileTheNewestRecordChanges) {
  Write(0, "L1", "C");
  for (int64_t counter = 100; counter < 110; ++counter) {
    VotedRecord record = *Vote("a", {}).value().record;
    ++record.record.version;
    record.written = {counter, "z"};
    ASSERT_TRUE(Vote("a", {.kind = VoteRequest::Kind::kAccept,
                           .ballot = {counter, "z"},
                           .next = {counter, "z"},
                           .record = record})
                    ->granted);
    Read();
    Deliver("a b c");
    EXPECT_EQ(Sent(), "ask a b c");
    After(kLimit);
    EXPECT_THAT(Result(), HasSubstr("the voters have different records"));
  }
}

TEST_F(ProposerTest, ReadsAskAgainAfterARefusal) {
  InterruptWrite("a");

  Read();
  AskUntilPrepare("a b c");
  OtherPrepares("b");
  Deliver("b");
  After(kLimit);
  Result();
  Sent();
  Read();
  Deliver("a b c");
  EXPECT_EQ(Sent(), "ask a b c");
}

TEST_F(ProposerTest, ReadWaitsForAWriteInProgress) {
  InterruptWrite("a");

  Read();
  Deliver("a b c");
  EXPECT_EQ(Other("a b c"), "L2");
  After(milliseconds(10));
  Deliver("a b");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_THAT(Sent(), Not(HasSubstr("prepare")));
}

// --- Writes

TEST_F(ProposerTest, TheFirstWriteOfTheFounder) {
  Know("a");
  Swap(0, "L1", "C");
  EXPECT_EQ(Sent(), "ask a");
  Deliver("a");
  EXPECT_EQ(Sent(), "prepare a");
  Deliver("a");
  EXPECT_EQ(Sent(), "accept a");
  Deliver("a");
  EXPECT_EQ(Result(), "swapped 1 L1 C");
}

TEST_F(ProposerTest, TheNextWriteSkipsPrepare) {
  Write(0, "L1", "C");
  for (int i = 1; i < 4; ++i) {
    Swap(i, "L");
    EXPECT_EQ(Sent(), "accept a b c");
    Deliver("a b");
    EXPECT_EQ(Result(), absl::StrCat("swapped ", i + 1, " L C"));
  }
}

TEST_F(ProposerTest, AReadDoesNotEndThePromiseForTheNextWrite) {
  Write(0, "L1", "C");
  Read();
  Deliver("a b");
  Sent();
  Swap(1, "L2");
  EXPECT_EQ(Sent(), "accept a b c");
}

TEST_F(ProposerTest, ARefusedAcceptPausesAndRetriesWithAHigherBallot) {
  Write(0, "L1", "C");
  OtherPrepares("b c");
  Swap(1, "L2");
  const Ballot first = Last("a").ballot;
  EXPECT_EQ(Sent(), "accept a b c");
  Deliver("a b");
  EXPECT_EQ(Sent(), "");
  Deliver("c");
  EXPECT_EQ(Sent(), "");
  ASSERT_LE(*me_->NextDeadline(), now_ + milliseconds(4));
  Wait();
  EXPECT_EQ(Sent(), "ask a b c");
  Deliver("b c");
  EXPECT_EQ(Sent(), "prepare a b c");
  EXPECT_GT(Last("a").ballot.counter, first.counter);
  EXPECT_GT(Last("a").ballot.counter, 1000) << "the one that a voter has named";
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, AVoterThatHasExitedDoesNotDelayTheRetry) {
  Write(0, "L1", "C");
  OtherPrepares("a");
  Swap(1, "L2");
  Lose("c");
  Deliver("a b");
  After(milliseconds(50));
  Wait();
  EXPECT_EQ(Sent(), "accept a b c, ask a b c");
  AskUntilPrepare("a b");
  DeliverAll("a b");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, AVoterThatAnswersSoonGrantsDespiteARefusal) {
  Write(0, "L1", "C");
  OtherPrepares("a");
  Swap(1, "L2");
  Deliver("a b");
  After(milliseconds(20));
  Deliver("c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, ARefusedPrepareRetriesWithAHigherBallot) {
  OtherPrepares("a b c");
  Know("a b c");
  Swap(0, "L1");
  Deliver("b c");
  EXPECT_EQ(Sent(), "ask a b c, prepare a b c");
  OtherPrepares("a b c");
  Deliver("a");
  EXPECT_EQ(Sent(), "");
  Wait();
  Deliver("b c");
  EXPECT_EQ(Sent(), "ask a b c, prepare a b c");
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 1 L1 ");
}

// Processes that want to replace a record which is no longer the newest do not disturb the one that writes.
TEST_F(ProposerTest, ASwapOfAnOldRecordAsksForNoPromise) {
  Write(0, "L1", "C");
  Know("a b c");
  EXPECT_EQ(Other("a b c", "L2"), "swapped");
  Swap(1, "L3");
  Deliver("b c");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Sent(), "ask a b c");
}

TEST_F(ProposerTest, AProcessThatHasPausedAsksBeforeItCompetesAgain) {
  Write(0, "L1", "C");
  OtherPrepares("a b c");
  Swap(1, "L2");
  Deliver("a b c");
  EXPECT_EQ(Other("a b c", "L3"), "swapped");
  Wait();
  Deliver("a b");
  EXPECT_EQ(Result(), "found 2 L3 C");
  EXPECT_EQ(Sent(), "accept a b c, ask a b c");
}

TEST_F(ProposerTest, ThePauseGrowsWithTheRoundTrip) {
  Write(0, "L1", "C");
  Duration longest{};
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    me_ = std::make_unique<Proposer>(ProposerRules{.self = {"a1", "a"}, .seed = seed},
                                     VoterSet{.number = 1, .now = Group("a b c")});
    Swap(1, "L2");
    Deliver("a b");
    OtherPrepares("a b c");
    After(milliseconds(100));
    Deliver("a b c");
    longest = std::max(longest, *me_->NextDeadline() - now_);
    After(kLimit);
    Result();
  }
  EXPECT_GT(longest, milliseconds(80));
  EXPECT_LE(longest, milliseconds(100));
}

TEST_F(ProposerTest, ARepeatedAcceptIsGrantedAgain) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a b c");
  Sent();
  Wait();
  EXPECT_EQ(Sent(), "accept a b c");
  Deliver("a b");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, TheOwnWriteIsRecognisedAfterLostAnswers) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a b");
  OtherPrepares("a b c");
  Wait();
  Deliver("c");
  Wait();
  Wait();
  EXPECT_EQ(Last("a").kind, VoteRequest::Kind::kAsk);
  Deliver("a b");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, TheOwnWriteIsRecognisedByAPromise) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  OtherPrepares("a b c");
  Deliver("b c");
  Wait();
  AskUntilPrepare("a b c");
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Has("c"), "2 L2 C");
}

TEST_F(ProposerTest, TheOwnWriteIsRecognisedAfterAnotherProcessHasWrittenItBack) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  EXPECT_EQ(Other("a b"), "L2");
  Wait();
  Deliver("a b c");
  Wait();
  Deliver("a b");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, AWriteThatMayHaveHappenedIsAnError) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a b");
  EXPECT_EQ(Other("a b c", "L3"), "swapped");
  EXPECT_EQ(Has("b"), "3 L3 C");
  Wait();
  Deliver("a b c");
  Wait();
  Deliver("a b");
  EXPECT_THAT(Result(), HasSubstr("may have happened before"));
}

TEST_F(ProposerTest, AWriteThatAnotherOfTheSameVersionPrecedesIsRefused) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  Fail("a b c");
  EXPECT_EQ(Other("a b", "L3"), "swapped");
  Wait();
  Deliver("a b");
  Wait();
  Sent();
  Deliver("a");
  EXPECT_EQ(Result(), "") << "until a quorum has the record, this write may still happen";
  Deliver("b");
  EXPECT_EQ(Result(), "found 2 L3 C");
  EXPECT_EQ(Sent(), "");
}

TEST_F(ProposerTest, ARefusedSwapReturnsTheRecordAfterAQuorumHasIt) {
  Write(0, "L1", "C");
  EXPECT_EQ(Other("a b", "L2"), "swapped");
  Know("a b c");
  Swap(1, "L3");
  AskUntilPrepare("b c");
  Deliver("b c");
  EXPECT_EQ(Last("c").kind, VoteRequest::Kind::kAccept);
  EXPECT_EQ(Result(), "");
  DeliverAll("b c");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Has("c"), "2 L2 C");
}

TEST_F(ProposerTest, ASwapOfARecordThatDoesNotExist) {
  Swap(5, "L1");
  Deliver("a b");
  EXPECT_EQ(Result(), "found none");
}

TEST_F(ProposerTest, ABallotIsOfOneRecord) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  const Ballot first = Last("a").ballot;
  Lose("a b c");
  After(kLimit);
  EXPECT_THAT(Result(), HasSubstr("no quorum"));
  Swap(1, "L3");
  Deliver("a b");
  EXPECT_EQ(Last("a").kind, VoteRequest::Kind::kPrepare);
  EXPECT_GT(Last("a").ballot, first);
}

TEST_F(ProposerTest, VotersThatAreLearntEndThePromise) {
  Write(0, "L1", "C");
  me_->Learn({.number = 1, .now = Group("d")});
  EXPECT_EQ(Known(), "1: a b c");
  me_->Learn({.number = 2, .now = Group("a b d")});
  EXPECT_EQ(Known(), "2: a b d");
  Swap(1, "L2");
  EXPECT_EQ(Sent(), "ask a b d");
}

}  // namespace
}  // namespace ddprun
