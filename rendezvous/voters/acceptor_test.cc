#include "rendezvous/voters/acceptor.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/vote.h"

namespace ddprun {
namespace {

using Kind = VoteRequest::Kind;

Ballot B(int64_t counter, const std::string& proposer = "p") { return {counter, proposer}; }

VoteRequest Prepare(Ballot ballot) { return {.kind = Kind::kPrepare, .voter = "v", .ballot = ballot}; }

// A record that names its ballot, with the charter of the write `charter`.
VoteRequest Accept(Ballot ballot, int64_t charter = 1) {
  VotedRecord record;
  record.record = {.version = ballot.counter, .exists = true, .lead = "L", .charter = "C"};
  record.written = ballot;
  record.charter_written = B(charter);
  return {.kind = Kind::kAccept,
          .voter = "v",
          .ballot = ballot,
          .next = {ballot.counter + 1, ballot.proposer},
          .record = record};
}
VoteRequest Omit(VoteRequest accept) {
  accept.charter_omitted = true;
  accept.record->record.charter.clear();
  return accept;
}
VoteRequest Has(VoteRequest request, int64_t charter) {
  request.has_charter = B(charter);
  return request;
}

// What the acceptor does with `request` after `before`.
struct Rule {
  const char* text;
  std::vector<VoteRequest> before;
  VoteRequest request;
  bool granted;
  Ballot promised;
  Ballot accepted;
};

TEST(AcceptorTest, Rules) {
  const Ballot none;
  const Rule rules[] = {
      {"a question changes nothing", {}, {.voter = "v"}, false, none, none},
      {"a question has no voter if it is a probe", {Accept(B(3))}, {}, false, B(4), B(3)},
      {"the first prepare", {}, Prepare(B(3)), true, B(3), none},
      {"a repeated prepare", {Prepare(B(3))}, Prepare(B(3)), true, B(3), none},
      {"a higher prepare", {Prepare(B(3))}, Prepare(B(4)), true, B(4), none},
      {"a lower prepare", {Prepare(B(3))}, Prepare(B(2)), false, B(3), none},
      {"a lower prepare with the same counter",
       {Prepare(B(3, "q"))},
       Prepare(B(3, "p")),
       false,
       B(3, "q"),
       none},
      {"the first accept", {}, Accept(B(3)), true, B(4), B(3)},
      {"accept of the promised ballot", {Prepare(B(3))}, Accept(B(3)), true, B(4), B(3)},
      {"accept above the promise", {Prepare(B(3))}, Accept(B(5)), true, B(6), B(5)},
      {"accept below the promise", {Prepare(B(3))}, Accept(B(2)), false, B(3), none},
      {"accept of the next ballot", {Accept(B(3))}, Accept(B(4)), true, B(5), B(4)},
      {"accept below the next ballot", {Accept(B(3, "q"))}, Accept(B(4, "p")), false, B(4, "q"), B(3, "q")},
      {"prepare below the next ballot", {Accept(B(3, "q"))}, Prepare(B(4, "p")), false, B(4, "q"), B(3, "q")},
      {"prepare of the next ballot", {Accept(B(3))}, Prepare(B(4)), true, B(4), B(3)},
      {"a repeated accept", {Accept(B(3))}, Accept(B(3)), true, B(4), B(3)},
      {"a repeated accept keeps a later promise",
       {Accept(B(3)), Prepare(B(9))},
       Accept(B(3)),
       true,
       B(9),
       B(3)},
      {"a late accept", {Accept(B(3)), Accept(B(4))}, Accept(B(3)), false, B(5), B(4)},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.text);
    Acceptor acceptor("v");
    for (const VoteRequest& request : rule.before) ASSERT_TRUE(acceptor.Vote(request)->granted);
    const VoteReply reply = acceptor.Vote(rule.request).value();
    EXPECT_EQ(reply.voter, "v");
    EXPECT_EQ(reply.granted, rule.granted);
    EXPECT_FALSE(reply.needs_charter);
    EXPECT_EQ(reply.promised, rule.promised);
    EXPECT_EQ(reply.accepted, rule.accepted);
    if (rule.request.kind == Kind::kAccept) {
      EXPECT_FALSE(reply.record.has_value());
    }

    const VoteReply now = acceptor.Vote({}).value();
    EXPECT_EQ(now.promised, rule.promised);
    EXPECT_EQ(now.accepted, rule.accepted);
    ASSERT_EQ(now.record.has_value(), rule.accepted != none);
    if (now.record) {
      EXPECT_EQ(*now.record, *Accept(rule.accepted).record);
    }
  }
}

TEST(AcceptorTest, PrepareReturnsTheRecordAlsoIfItIsRefused) {
  Acceptor acceptor("v");
  ASSERT_TRUE(acceptor.Vote(Accept(B(3)))->granted);
  EXPECT_EQ(acceptor.Vote(Prepare(B(9)))->record, Accept(B(3)).record);
  EXPECT_EQ(acceptor.Vote(Prepare(B(2)))->record, Accept(B(3)).record);
}

TEST(AcceptorTest, ARequestForAnotherProcessIsRefused) {
  Acceptor acceptor("w");
  EXPECT_TRUE(absl::IsNotFound(acceptor.Vote(Prepare(B(3))).status()));
  EXPECT_TRUE(absl::IsNotFound(acceptor.Vote(Accept(B(3))).status()));
  EXPECT_EQ(acceptor.Vote({})->promised, Ballot());
}

TEST(AcceptorTest, AnOmittedCharterIsTheOneThatItHas) {
  Acceptor acceptor("v");
  ASSERT_TRUE(acceptor.Vote(Accept(B(3)))->granted);
  ASSERT_TRUE(acceptor.Vote(Omit(Accept(B(4))))->granted);
  EXPECT_EQ(acceptor.Vote({})->record, Accept(B(4)).record);
}

TEST(AcceptorTest, WithoutTheOmittedCharterItAsksForIt) {
  for (const bool has_another : {false, true}) {
    Acceptor acceptor("v");
    if (has_another) {
      ASSERT_TRUE(acceptor.Vote(Accept(B(3)))->granted);
    }
    const VoteReply before = acceptor.Vote({}).value();
    const VoteReply reply = acceptor.Vote(Omit(Accept(B(4), 2))).value();
    EXPECT_FALSE(reply.granted);
    EXPECT_TRUE(reply.needs_charter);
    EXPECT_EQ(acceptor.Vote({})->record, before.record);
    EXPECT_EQ(acceptor.Vote({})->promised, before.promised);
    EXPECT_TRUE(acceptor.Vote(Accept(B(4), 2))->granted);
    EXPECT_EQ(acceptor.Vote({})->record, Accept(B(4), 2).record);
  }
}

TEST(AcceptorTest, ARefusedAcceptDoesNotAskForTheCharter) {
  Acceptor acceptor("v");
  ASSERT_TRUE(acceptor.Vote(Prepare(B(9)))->granted);
  EXPECT_FALSE(acceptor.Vote(Omit(Accept(B(4))))->needs_charter);
}

TEST(AcceptorTest, OmitsTheCharterThatTheSenderHas) {
  Acceptor acceptor("v");
  ASSERT_TRUE(acceptor.Vote(Accept(B(3), 1))->granted);
  for (const VoteRequest& request : {VoteRequest(), Prepare(B(9))}) {
    const VoteReply with = acceptor.Vote(Has(request, 2)).value();
    EXPECT_FALSE(with.charter_omitted);
    EXPECT_EQ(with.record->record.charter, "C");
    const VoteReply without = acceptor.Vote(Has(request, 1)).value();
    EXPECT_TRUE(without.charter_omitted);
    EXPECT_EQ(without.record->record.charter, "");
  }
  EXPECT_EQ(acceptor.Vote({})->record->record.charter, "C");
}

}  // namespace
}  // namespace ddprun
