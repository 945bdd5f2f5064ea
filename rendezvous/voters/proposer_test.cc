// Reads and writes while the voters stay the same. For changes of the voters see proposer_voters_test.cc.
#include "rendezvous/voters/proposer.h"

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/testing/proposer_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProposerTest : public ProposerFixture {};

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
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  After(kLimit);
  Result();
  Sent();

  Read();
  Deliver("a b");
  EXPECT_EQ(Result(), "");
  Deliver("c");  // each quorum either differs or is not the newest
  EXPECT_EQ(Result(), "");
}

TEST_F(ProposerTest, ReadWhoseVotersDifferWritesTheNewestBack) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  After(kLimit);
  Result();
  Sent();

  Read();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Sent(), "ask a b c");
    Deliver("a b c");
    EXPECT_EQ(Sent(), "");
    Wait();
  }
  EXPECT_EQ(Sent(), "prepare a b c");
  Deliver("a b");
  EXPECT_EQ(Sent(), "accept a b c");
  Deliver("b");
  EXPECT_EQ(Result(), "");
  Deliver("a");
  EXPECT_EQ(Result(), "found 2 L2 C");
  EXPECT_EQ(Has("b"), "2 L2 C");
}

TEST_F(ProposerTest, ReadWaitsForAWriteInProgress) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  After(kLimit);
  Result();
  Sent();

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
  EXPECT_EQ(Sent(), "accept a b c, prepare a b c");
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
  Swap(0, "L1");
  Deliver("a");
  EXPECT_EQ(Sent(), "prepare a b c");
  Wait();
  EXPECT_EQ(Sent(), "prepare a b c");
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 1 L1 ");
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
  EXPECT_EQ(Last("a").kind, VoteRequest::Kind::kPrepare);
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, TheOwnWriteIsRecognisedAfterAnotherProcessHasWrittenItBack) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a");
  EXPECT_EQ(Other("a b"), "L2");
  Wait();
  DeliverAll();
  Wait();
  DeliverAll();
  EXPECT_EQ(Result(), "swapped 2 L2 C");
}

TEST_F(ProposerTest, AWriteThatMayHaveHappenedIsAnError) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  LoseAnswer("a b");
  EXPECT_EQ(Other("a b c", "L3"), "swapped");
  EXPECT_EQ(Has("b"), "3 L3 C");
  Wait();
  DeliverAll();
  Wait();
  DeliverAll();
  EXPECT_THAT(Result(), HasSubstr("may have happened before"));
}

TEST_F(ProposerTest, ARefusedSwapReturnsTheRecordAfterAQuorumHasIt) {
  Write(0, "L1", "C");
  EXPECT_EQ(Other("a b", "L2"), "swapped");
  Know("a b c");
  Swap(1, "L3");
  Deliver("b c");
  Wait();
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
  EXPECT_EQ(Sent(), "prepare a b d");
}

// --- Charters

TEST_F(ProposerTest, ACharterIsNotSentAgain) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  EXPECT_TRUE(Last("b").charter_omitted);
  EXPECT_EQ(Last("b").record->record.charter, "");
  Deliver("b c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Has("b"), "2 L2 C");
}

TEST_F(ProposerTest, AVoterThatLacksTheCharterIsSentIt) {
  Swap(0, "L1", "C");
  DeliverAll("a b");
  Result();
  Swap(1, "L2");
  Deliver("c");
  EXPECT_FALSE(Last("c").charter_omitted);
  Deliver("c a");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Has("c"), "2 L2 C");
}

TEST_F(ProposerTest, AnOmittedCharterThatIsNotKeptAnyMoreIsFetched) {
  Write(0, "L1", "C");
  EXPECT_EQ(Other("a b c"), "L1");
  Swap(1, "L2", "D");  // voter a alone has D
  LoseAnswer("a");
  After(kLimit);
  Result();
  Read();
  EXPECT_GT(Last("b").has_charter.counter, 0);
  ASSERT_TRUE(Vote("b", Last("b"))->charter_omitted);
  Deliver("a");  // from now on D is kept
  Sent();
  Deliver("b");
  EXPECT_EQ(Sent(), "ask b");
  Deliver("b c");
  Wait();
  Wait();
  Deliver("b c");  // agree, before a answers
  EXPECT_EQ(Result(), "found 1 L1 C");
}

// --- Errors

TEST_F(ProposerTest, TheErrorNamesTheVotersThatDoNotAnswer) {
  Write(0, "L1", "C");
  Read();
  Deliver("a");
  Fail("b", absl::UnavailableError("connection refused"));
  After(kLimit);
  EXPECT_THAT(Result(), AllOf(HasSubstr("1 of 3 have answered"), HasSubstr("b: connection refused"),
                              HasSubstr("c: no answer"), Not(HasSubstr("a:"))));
}

TEST_F(ProposerTest, AFailedRequestIsRepeated) {
  Read();
  Sent();
  Fail("b");
  EXPECT_EQ(Sent(), "");
  After(milliseconds(20));
  EXPECT_EQ(Sent(), "ask b");
}

TEST_F(ProposerTest, AVoterThatHasRestartedIsNotAskedAgain) {
  Start("b", 2);
  Read();
  Sent();
  Deliver("b");
  After(milliseconds(100));
  EXPECT_EQ(Sent(), "");
  After(kLimit);
  EXPECT_THAT(Result(), HasSubstr("b: voter b1 has exited; this is b2"));
}

TEST_F(ProposerTest, AnswersToEarlierRequestsAndRepeatedAnswersAreIgnored) {
  Write(0, "L1", "C");
  Read();
  const absl::StatusOr<VoteReply> early = Vote("b", Last("b"));
  Fail("a b");
  EXPECT_EQ(Other("b c", "L2"), "swapped");
  Wait();
  DeliverAll("b c");
  EXPECT_EQ(Result(), "found 2 L2 C");
  Step(VoteDone{1, early});
  EXPECT_EQ(Result(), "");
}

TEST_F(ProposerTest, NothingIsSentAfterTheEnd) {
  Step(ReadWanted{.end = now_});
  EXPECT_THAT(Result(), HasSubstr("no quorum"));
  EXPECT_EQ(Sent(), "");

  // The process was suspended for minutes. The answers are read before the timers are.
  Write(0, "L1", "C");
  Swap(1, "L2", "D");
  LoseAnswer("a");
  After(kLimit);
  Result();
  Swap(1, "L3");
  Sent();
  now_ += seconds(300);
  Deliver("a");
  EXPECT_EQ(Sent(), "");
  EXPECT_THAT(Result(), HasSubstr("no quorum"));
  EXPECT_EQ(me_->NextDeadline(), std::nullopt);
}

}  // namespace
}  // namespace ddprun
