#include "rendezvous/voters/witness.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/voters.pb.h"
#include "rendezvous/charter/lead.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/vote_codec.h"

namespace ddprun {
namespace {

using Kind = VoteRequest::Kind;
using testing::HasSubstr;

constexpr Duration kLease = seconds(4);
const VoterSet kVoters{.number = 2, .now = {.voters = {{"v", "node1:1"}}, .tie_breaker = "v"}};

class WitnessTest : public testing::Test {
 protected:
  absl::StatusOr<VoteReply> Send(const VoteRequest& request, const std::string& job = "j") {
    const absl::StatusOr<proto::VoteReply> reply = witness_.Answer(EncodeVoteRequest(job, request), now_);
    if (!reply.ok()) return reply.status();
    return DecodeVoteReply(*reply);
  }
  std::string Id(const std::string& job = "j") {
    const absl::StatusOr<VoteReply> reply = Send({}, job);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->voter : "";
  }
  absl::StatusOr<VoteReply> Found() { return Send({.wants_voters = true}); }
  // The leader writes.
  void Write(const Lead& lead, const std::string& job = "j", const std::string& charter = "C") {
    const Ballot ballot{++ballots_, "p"};
    VotedRecord record{.written = ballot, .charter_written = ballot, .voters = kVoters};
    record.record = {.version = ballots_, .exists = true, .lead = EncodeLead(lead), .charter = charter};
    const absl::StatusOr<VoteReply> reply =
        Send({.kind = Kind::kAccept, .ballot = ballot, .next = {ballots_ + 1, "p"}, .record = record}, job);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->granted);
  }
  Lead LeadAt(const std::string& address, Lead::State state = Lead::State::kLeads) {
    return {.epoch = 1, .leader = "p", .address = address, .state = state, .lease = kLease, .swap = 1};
  }

  int ids_ = 0;
  int64_t ballots_ = 0;
  TimePoint now_ = TimePoint() + seconds(1000);
  Witness witness_{[this] { return "w" + std::to_string(++ids_); }};
};

TEST_F(WitnessTest, IsAnotherVoterForEachJobAndSaysWhatItIs) {
  EXPECT_EQ(Id("a"), "w1");
  EXPECT_EQ(Id("b"), "w2");
  EXPECT_EQ(Id("a"), "w1");
  EXPECT_TRUE(Send({})->witness);
}

TEST_F(WitnessTest, KeepsTheRecordOfEachJob) {
  Write(LeadAt("node1:1"), "a");
  Write(LeadAt("node2:2"), "b");
  EXPECT_EQ(DecodeLead(Send({}, "a")->record->record.lead)->address, "node1:1");
  EXPECT_EQ(witness_.Leader("a", now_), "node1:1");
  EXPECT_EQ(witness_.Leader("b", now_), "node2:2");
  EXPECT_EQ(witness_.Leader("c", now_), "");
}

TEST_F(WitnessTest, NamesNoLeaderThatIsSilentOrHasLeft) {
  Write(LeadAt("node1:1"));
  now_ += 2 * kLease;
  EXPECT_EQ(witness_.Leader("j", now_), "");
  Write(LeadAt("node1:1"));
  EXPECT_EQ(witness_.Leader("j", now_), "node1:1");
  Write(LeadAt("node1:1", Lead::State::kLeft));
  EXPECT_EQ(witness_.Leader("j", now_), "");
}

TEST_F(WitnessTest, TheAgentsThatFoundAJobGetOneVoter) {
  EXPECT_EQ(Found()->voter, "w1");
  EXPECT_EQ(Found()->voter, "w1");
  EXPECT_FALSE(Found()->voters);
}

TEST_F(WitnessTest, AJobIsNotFoundedAgainWhileItHasALeader) {
  Write(LeadAt("node1:1"));
  now_ += seconds(3);
  const absl::Status status = Found().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("job j had a coordinator 3 s ago"));
  EXPECT_THAT(status.message(), HasSubstr("silent for 8 s"));
  // The leader need not write here.
  EXPECT_TRUE(Send({.voters = kVoters}).ok());
  now_ += 2 * kLease - milliseconds(1);
  EXPECT_FALSE(Found().ok());
  EXPECT_EQ(Id(), "w1");
}

TEST_F(WitnessTest, ForgetsASilentJobThatIsFoundedAgain) {
  Write(LeadAt("node1:1"));
  now_ += 2 * kLease;
  const absl::StatusOr<VoteReply> reply = Found();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->voter, "w2");
  EXPECT_FALSE(Send({})->record);
  EXPECT_TRUE(absl::IsNotFound(Send({.voter = "w1"}).status()));
}

TEST_F(WitnessTest, ForgetsAJobThatIsOverAtOnce) {
  Write(LeadAt("node1:1", Lead::State::kClosed));
  EXPECT_EQ(Found()->voter, "w2");
}

TEST_F(WitnessTest, ForgetsJobsWithoutRequests) {
  EXPECT_EQ(Id("a"), "w1");
  now_ += Witness::kIdle - seconds(1);
  EXPECT_EQ(Id("b"), "w2");
  EXPECT_EQ(Id("a"), "w1");
  now_ += Witness::kIdle;
  EXPECT_EQ(Id("c"), "w3");
  EXPECT_EQ(Id("a"), "w4");
}

TEST_F(WitnessTest, HasALimitedNumberOfJobs) {
  for (size_t i = 0; i < Witness::kMaxJobs; ++i) {
    now_ += milliseconds(1);
    Id("j" + std::to_string(i));
  }
  EXPECT_EQ(Id("j0"), "w1");
  now_ += milliseconds(1);
  Id("one more");
  EXPECT_EQ(Id("j0"), "w1");
  EXPECT_NE(Id("j1"), "w2");
}

TEST_F(WitnessTest, HasALimitedSize) {
  for (const char* const job : {"a", "b", "c"}) {
    now_ += milliseconds(1);
    Write(LeadAt("node1:1"), job, std::string(Witness::kMaxBytes * 2 / 5, 'x'));
  }
  now_ += milliseconds(1);
  EXPECT_TRUE(Send({}, "b")->record);
  EXPECT_TRUE(Send({}, "c")->record);
  EXPECT_FALSE(Send({}, "a")->record);
  // A record that has room nowhere is forgotten, too.
  Write(LeadAt("node1:1"), "d", std::string(Witness::kMaxBytes, 'x'));
  EXPECT_FALSE(Send({}, "d")->record);
}

TEST_F(WitnessTest, RefusesAMalformedRequest) {
  proto::VoteRequest request = EncodeVoteRequest("j", {.kind = Kind::kAccept});
  EXPECT_TRUE(absl::IsInvalidArgument(witness_.Answer(request, now_).status()));
}

}  // namespace
}  // namespace ddprun
