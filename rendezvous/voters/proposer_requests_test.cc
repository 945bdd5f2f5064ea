// Charters, errors, and requests that are late or repeated.
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/testing/proposer_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProposerRequestsTest : public ProposerFixture {};

// --- Voters that have exited

TEST_F(ProposerRequestsTest, TheCallEndsWhenTooManyVotersHaveExited) {
  Write(0, "L1", "C");
  Read();
  Deliver("a");
  Fail("b", absl::NotFoundError("refused"));
  EXPECT_EQ(Result(), "");
  Fail("c", absl::NotFoundError("refused"));
  EXPECT_EQ(Result(),
            "so many of the job's voters have exited (b, c) that those which are left do not know how far "
            "the job is");
}

TEST_F(ProposerRequestsTest, AWriteEndsWhenTooManyVotersHaveExited) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  Fail("b c", absl::NotFoundError("refused"));
  Deliver("a");
  EXPECT_THAT(Result(), HasSubstr("have exited (b, c)"));
}

TEST_F(ProposerRequestsTest, NewVotersMayStandInForThoseThatHaveExited) {
  EXPECT_EQ(Other("a b c d e f", "L2", "d e f"), "swapped");
  Read();
  Fail("b", absl::NotFoundError("refused"));
  Deliver("a c");
  DeliverAll("d e f");
  EXPECT_THAT(Result(), HasSubstr("L2"));
}

// --- Charters

TEST_F(ProposerRequestsTest, ACharterIsNotSentAgain) {
  Write(0, "L1", "C");
  Swap(1, "L2");
  EXPECT_TRUE(Last("b").charter_omitted);
  EXPECT_EQ(Last("b").record->record.charter, "");
  Deliver("b c");
  EXPECT_EQ(Result(), "swapped 2 L2 C");
  EXPECT_EQ(Has("b"), "2 L2 C");
}

TEST_F(ProposerRequestsTest, AVoterThatLacksTheCharterIsSentIt) {
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

TEST_F(ProposerRequestsTest, AnOmittedCharterThatIsNotKeptAnyMoreIsFetched) {
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

TEST_F(ProposerRequestsTest, TheErrorNamesTheVotersThatDoNotAnswer) {
  Write(0, "L1", "C");
  Read();
  Deliver("a");
  Fail("b", absl::UnavailableError("connection refused"));
  After(kLimit);
  EXPECT_THAT(Result(), AllOf(HasSubstr("1 of 3 have answered"), HasSubstr("b: connection refused"),
                              HasSubstr("c: no answer"), Not(HasSubstr("a:"))));
}

TEST_F(ProposerRequestsTest, AFailedRequestIsRepeated) {
  Read();
  Sent();
  Fail("b");
  EXPECT_EQ(Sent(), "");
  After(milliseconds(20));
  EXPECT_EQ(Sent(), "ask b");
}

TEST_F(ProposerRequestsTest, AVoterThatHasRestartedIsNotAskedAgain) {
  Start("b", 2);
  Read();
  Sent();
  Deliver("b");
  After(milliseconds(100));
  EXPECT_EQ(Sent(), "");
  After(kLimit);
  EXPECT_THAT(Result(), HasSubstr("b: voter b1 has exited; this is b2"));
}

TEST_F(ProposerRequestsTest, AnswersToEarlierRequestsAndRepeatedAnswersAreIgnored) {
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

TEST_F(ProposerRequestsTest, NothingIsSentAfterTheEnd) {
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
