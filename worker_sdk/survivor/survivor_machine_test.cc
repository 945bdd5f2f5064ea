#include "worker_sdk/survivor/survivor_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Machine = SurvivorMachine;
using State = Machine::State;
using Effects = std::vector<Machine::Effect>;

const Status kGone = UnavailableError("rank 2 of round 7 is gone");

AgentRequest Agrees(int64_t round) { return {.round = Round(round), .may_survive = true}; }
AgentRequest Over(int64_t round) { return {.round = Round(round), .may_survive = true, .round_over = true}; }
AgentRequest NoneFollows(int64_t round) {
  return {.round = Round(round), .may_survive = true, .round_over = true, .no_round_follows = true};
}
RoundOffer Offer(int64_t round) {
  return {.round = Round(round),
          .rank = Rank(1),
          .group_rank = GroupRank(0),
          .world_size = 3,
          .master_addr = "127.0.0.1",
          .master_port = 4711};
}
Machine::SendParked Parked(int64_t round, const std::string& message) {
  return {Round(round), Rank(round == 7 ? 0 : 1), message};
}
Machine::EndRound End(const std::string& message) { return {AbortedError(message)}; }

// Rank 0 of round 7, which has asked.
class SurvivorMachineTest : public testing::Test {
 protected:
  Effects Step(const Machine::Event& event) { return machine_.Step(event); }
  void Park() {
    Step(Agrees(7));
    EXPECT_THAT(Step(Machine::CallerLeaves{kGone}),
                ElementsAre(End("rank 0 of round 7 gave up: the round is over: rank 2 of round 7 is gone")));
    EXPECT_EQ(machine_.state(), State::kLeaving);
    EXPECT_THAT(Step(Machine::CallerWaits{}),
                ElementsAre(Parked(7, "UNAVAILABLE: rank 2 of round 7 is gone")));
    EXPECT_EQ(machine_.state(), State::kParked);
    EXPECT_THAT(Step(Machine::CallerWaits{}), IsEmpty());
  }
  void ExpectOut(const std::string& why) {
    const Effects effects = Step(Machine::CallerWaits{});
    ASSERT_EQ(effects.size(), 1u);
    ASSERT_TRUE(std::holds_alternative<Machine::Fail>(effects[0]));
    const Status& status = std::get<Machine::Fail>(effects[0]).why;
    EXPECT_TRUE(IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_EQ(machine_.state(), State::kOut);
    EXPECT_THAT(Step(Agrees(7)), IsEmpty());
    EXPECT_THAT(Step(Offer(8)), IsEmpty());
    EXPECT_THAT(machine_.WhyNot(kGone).message(), HasSubstr("has left round"));
  }

  Machine machine_{Round(7), Rank(0)};
};

TEST_F(SurvivorMachineTest, ParksAndTakesTheNextRound) {
  Park();
  EXPECT_THAT(Step(Over(7)), IsEmpty());
  EXPECT_THAT(Step(Offer(8)), IsEmpty());
  EXPECT_EQ(machine_.state(), State::kOffered);
  EXPECT_THAT(Step(Machine::CallerWaits{}), ElementsAre(Machine::Connect{Offer(8)}));
  EXPECT_EQ(machine_.state(), State::kInRound);
  EXPECT_EQ(machine_.round(), Round(8));
  EXPECT_EQ(machine_.rank(), Rank(1));
  EXPECT_TRUE(machine_.WhyNot(kGone).ok()) << "the consent holds for later rounds";
  EXPECT_THAT(Step(Over(8)),
              ElementsAre(End("rank 1 of round 8 gave up: the round is over: its agent has ended it")));
}

TEST_F(SurvivorMachineTest, TheEndOfTheRoundEndsItOnce) {
  Step(Agrees(7));
  EXPECT_THAT(Step(Over(6)), IsEmpty());
  EXPECT_THAT(Step(Over(8)), IsEmpty());
  EXPECT_THAT(Step(Over(7)),
              ElementsAre(End("rank 0 of round 7 gave up: the round is over: its agent has ended it")));
  EXPECT_THAT(Step(Over(7)), IsEmpty());
  EXPECT_TRUE(machine_.WhyNot(AbortedError("the round is over")).ok());
}

// The workers may handle SIGTERM, and save their state together.
TEST_F(SurvivorMachineTest, ARoundWithoutASuccessorGoesOn) {
  Step(Agrees(7));
  EXPECT_THAT(Step(NoneFollows(7)), IsEmpty());
  EXPECT_THAT(machine_.WhyNot(kGone).message(), HasSubstr("no round follows round 7"));
}

TEST_F(SurvivorMachineTest, WithoutConsentThereIsNoOtherRound) {
  EXPECT_THAT(machine_.WhyNot(kGone).message(), HasSubstr("the agent has not agreed"));
  Step(AgentRequest{.round = Round(7), .take_snapshot = true});
  EXPECT_FALSE(machine_.WhyNot(kGone).ok());
  Step(Agrees(6));
  EXPECT_FALSE(machine_.WhyNot(kGone).ok());
  EXPECT_THAT(Step(AgentRequest{.round = Round(7), .round_over = true}), IsEmpty());
  Step(Agrees(7));
  EXPECT_TRUE(machine_.WhyNot(kGone).ok());
  Step(AgentRequest{.round = Round(7)});
  EXPECT_FALSE(machine_.WhyNot(kGone).ok()) << "a request has the whole state";
}

TEST_F(SurvivorMachineTest, OnlyErrorsOfTheRoundLeadToAnotherOne) {
  Step(Agrees(7));
  for (const Status& why : {UnavailableError("x"), AbortedError("x"), DeadlineExceededError("x")}) {
    EXPECT_TRUE(machine_.WhyNot(why).ok()) << why;
  }
  for (const Status& why : {OkStatus(), InvalidArgumentError("x"), DataLossError("x"), InternalError("x"),
                            FailedPreconditionError("x"), ResourceExhaustedError("x")}) {
    const Status not_helpful = machine_.WhyNot(why);
    EXPECT_TRUE(IsFailedPrecondition(not_helpful)) << why;
    EXPECT_THAT(not_helpful.message(), HasSubstr(why.ToString()));
  }
}

TEST_F(SurvivorMachineTest, ARoundThatEndedBeforeTheOfferWasReadIsSkipped) {
  Park();
  Step(Offer(8));
  EXPECT_THAT(Step(Over(8)), IsEmpty());
  EXPECT_THAT(Step(Machine::CallerWaits{}),
              ElementsAre(Parked(8,
                                 "rank 1 of round 8 gave up: the round is over: it ended before this rank "
                                 "connected")));
  EXPECT_EQ(machine_.state(), State::kParked);
  EXPECT_EQ(machine_.round(), Round(8));
  Step(Offer(9));
  EXPECT_THAT(Step(Machine::CallerWaits{}), ElementsAre(Machine::Connect{Offer(9)}));
  EXPECT_THAT(Step(Over(9)), testing::SizeIs(1)) << "the end of round 8 does not count for round 9";
}

TEST_F(SurvivorMachineTest, OffersAreForParkedWorkersAndLaterRounds) {
  Step(Agrees(7));
  Step(Offer(8));
  EXPECT_EQ(machine_.state(), State::kInRound);
  Step(Machine::CallerLeaves{kGone});
  Step(Offer(8));
  EXPECT_EQ(machine_.state(), State::kLeaving);
  Step(Machine::CallerWaits{});
  for (const int64_t old : {6, 7}) {
    Step(Offer(old));
    EXPECT_EQ(machine_.state(), State::kParked);
  }
  Step(Offer(9));
  Step(Offer(10));
  EXPECT_THAT(Step(Machine::CallerWaits{}), ElementsAre(Machine::Connect{Offer(9)}));
}

TEST_F(SurvivorMachineTest, NoRoundFollowsAtAnyTime) {
  for (const int64_t round : {6, 7, 8}) {  // of a request; it is final
    for (const int steps : {0, 1, 2, 3}) {
      SCOPED_TRACE(StrCat(round, " ", steps));
      machine_ = Machine(Round(7), Rank(0));
      Step(Agrees(7));
      Step(Machine::CallerLeaves{kGone});
      if (steps > 0) Step(Machine::CallerWaits{});
      if (steps > 1) Step(Offer(8));
      if (steps > 2) Step(Over(8));
      EXPECT_THAT(Step(NoneFollows(round)), IsEmpty());
      ExpectOut("no round follows");
    }
  }
}

TEST_F(SurvivorMachineTest, AConnectionThatIsLostOutsideOfARoundIsTheEnd) {
  for (const int steps : {0, 1, 2}) {
    SCOPED_TRACE(steps);
    machine_ = Machine(Round(7), Rank(0));
    Step(Agrees(7));
    Step(Machine::CallerLeaves{kGone});
    if (steps > 0) Step(Machine::CallerWaits{});
    if (steps > 1) Step(Offer(8));
    EXPECT_THAT(Step(Machine::ConnectionLost{}), IsEmpty());
    Step(Agrees(7));
    ExpectOut("the connection to the agent was lost");
  }
}

TEST_F(SurvivorMachineTest, InARoundAnotherConnectionNeedsAnotherConsent) {
  Step(Agrees(7));
  EXPECT_THAT(Step(Machine::ConnectionLost{}), IsEmpty());
  EXPECT_THAT(machine_.WhyNot(kGone).message(), HasSubstr("the connection to the agent was lost"));
  Step(AgentRequest{.round = Round(7)});
  EXPECT_FALSE(machine_.WhyNot(kGone).ok());
  Step(Agrees(7));
  EXPECT_TRUE(machine_.WhyNot(kGone).ok());
  Park();
}

// All sequences of events, against rules that do not know the states.
class Exploration {
 public:
  explicit Exploration(std::vector<Machine::Event> prefix) {
    for (const Machine::Event& event : prefix) Step(event);
  }

  void Explore(int depth) {
    if (depth == 0) return;
    static const std::vector<Machine::Event> kOfTheAgent = {AgentRequest{.round = Round(7)},
                                                            Agrees(7),
                                                            Agrees(8),
                                                            Over(7),
                                                            Over(8),
                                                            Over(9),
                                                            NoneFollows(8),
                                                            Offer(7),
                                                            Offer(8),
                                                            Offer(9),
                                                            Machine::ConnectionLost{}};
    static const Machine::Event kWaits = Machine::CallerWaits{}, kLeaves = Machine::CallerLeaves{kGone};
    for (const Machine::Event& event : kOfTheAgent) Try(event, depth);
    if (leaving_) Try(kWaits, depth);
    if (!leaving_ && machine_.WhyNot(kGone).ok()) Try(kLeaves, depth);
  }

  int64_t num_connects = 0;

 private:
  void Try(const Machine::Event& event, int depth) {
    if (testing::Test::HasFailure()) return;
    Exploration next = *this;
    next.Step(event);
    next.Explore(depth - 1);
    num_connects = next.num_connects;
  }

  void Step(const Machine::Event& event) {
    trace_ += StrCat(" ", event.index());
    SCOPED_TRACE(trace_);
    const bool waits = std::holds_alternative<Machine::CallerWaits>(event);
    if (std::holds_alternative<Machine::CallerLeaves>(event)) leaving_ = true;
    const Effects effects = machine_.Step(event);
    if (std::holds_alternative<Machine::ConnectionLost>(event)) lost_ = true;
    if (const auto* request = std::get_if<AgentRequest>(&event)) {
      if (request->no_round_follows) none_follows_ = true;
      if (!leaving_ && request->may_survive && request->round == Round(round_)) lost_ = false;
      if (request->round_over && (offered_.contains(request->round.value()))) {
        over_.insert(request->round.value());
      }
    }
    if (const auto* offer = std::get_if<RoundOffer>(&event); offer && parked_.contains(round_)) {
      if (offer->round.value() > round_ && machine_.round() == offer->round && leaving_) {
        round_ = offer->round.value();
        offered_.insert(round_);
      }
    }
    ASSERT_LE(effects.size(), 1u);
    for (const Machine::Effect& effect : effects) Check(effect, waits);
    ASSERT_EQ(machine_.round(), Round(round_));
    if (waits && (lost_ || none_follows_)) {
      ASSERT_TRUE(out_);
    }
  }

  void Check(const Machine::Effect& effect, bool waits) {
    ASSERT_FALSE(out_ && !waits);
    if (std::holds_alternative<Machine::EndRound>(effect)) {
      ASSERT_FALSE(waits);
      ASSERT_FALSE(parked_.contains(round_));
      return;
    }
    ASSERT_TRUE(waits);
    ASSERT_FALSE(out_);
    if (const auto* parked = std::get_if<Machine::SendParked>(&effect)) {
      ASSERT_EQ(parked->round, Round(round_));
      ASSERT_TRUE(parked_.insert(round_).second) << "a worker parks once";
      ASSERT_FALSE(lost_ || none_follows_);
    } else if (const auto* connect = std::get_if<Machine::Connect>(&effect)) {
      ++num_connects;
      ASSERT_EQ(connect->offer.round, Round(round_));
      ASSERT_TRUE(offered_.contains(round_));
      ASSERT_FALSE(over_.contains(round_) || parked_.contains(round_) || lost_ || none_follows_);
      leaving_ = false;
    } else {
      ASSERT_TRUE(lost_ || none_follows_);
      out_ = true;
      leaving_ = false;
    }
  }

  Machine machine_{Round(7), Rank(0)};
  int64_t round_ = 7;  // that began last, or was offered
  bool leaving_ = false, lost_ = false, none_follows_ = false, out_ = false;
  std::set<int64_t> parked_, offered_, over_;
  std::string trace_;
};

TEST(SurvivorMachineWorldsTest, AllSequencesKeepTheRules) {
  const std::vector<Machine::Event> prefixes[] = {
      {Agrees(7)},
      {Agrees(7), Machine::CallerLeaves{kGone}, Machine::CallerWaits{}},
      {Agrees(7), Machine::CallerLeaves{kGone}, Machine::CallerWaits{}, Offer(8), Over(8)},
      {Agrees(7), Machine::CallerLeaves{kGone}, Machine::CallerWaits{}, Offer(8), Machine::CallerWaits{}},
  };
  for (const auto& prefix : prefixes) {
    Exploration exploration(prefix);
    exploration.Explore(5);
    EXPECT_GT(exploration.num_connects, 0);
  }
}

}  // namespace
}  // namespace ddprun
