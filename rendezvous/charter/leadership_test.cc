#include "rendezvous/charter/leadership.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using State = LeadershipMachine::State;

// One candidate, and a register in the hands of the test. The lease is 10 s.
class LeadershipTest : public ::testing::Test {
 protected:
  static constexpr Duration kLease = seconds(10);

  // Steps the machine, and keeps the effects for Take.
  void Step(const LeadershipEvent& event) {
    for (LeadershipEffect& effect : machine_.Step(event, now_)) effects_.push_back(std::move(effect));
  }
  void After(Duration d) {
    now_ += d;
    Step(LeadershipTick{});
  }
  // Removes and returns the only effect of this type.
  template <typename E>
  E Take() {
    std::optional<E> found;
    for (auto it = effects_.begin(); it != effects_.end();) {
      if (std::holds_alternative<E>(*it)) {
        EXPECT_FALSE(found.has_value()) << "a second effect of this type";
        found = std::get<E>(*it);
        it = effects_.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_TRUE(found.has_value()) << "no effect of this type";
    return found.value_or(E());
  }
  template <typename E>
  bool Has() const {
    return std::any_of(effects_.begin(), effects_.end(),
                       [](const auto& e) { return std::holds_alternative<E>(e); });
  }
  // The register carries out the pending swap, and answers.
  void Carry(const SwapRegister& swap) {
    Happen(swap);
    Step(SwapDone{SwapResult{true, {.version = record_.version, .exists = true}}});
  }
  // The register carries out the swap. The answer is lost.
  void Happen(const SwapRegister& swap) {
    ASSERT_EQ(swap.version, record_.version);
    ASSERT_EQ(swap.exists, record_.exists);
    record_ = {++version_, true, swap.lead, swap.charter.value_or(record_.charter)};
  }
  void Refuse(const SwapRegister& swap) {
    ASSERT_NE(swap.version, record_.version);
    Step(SwapDone{SwapResult{false, record_}});
  }
  // Another process writes.
  void Other(Lead lead, const std::string& charter = "") {
    record_ = {++version_, true, EncodeLead(lead), charter.empty() ? record_.charter : charter};
  }
  void AnswerRead() {
    Take<ReadRegister>();
    Step(ReadDone{record_});
  }
  void BecomeLeader() {
    Step(LeadershipTick{});
    AnswerRead();
    Carry(Take<SwapRegister>());
    Take<BeginToLead>();
    ASSERT_EQ(machine_.state(), State::kLeading);
  }
  Lead InRegister() const { return DecodeLead(record_.lead).value(); }

  BootTime now_ = BootTime(seconds(1000));
  int64_t version_ = 40;
  RegisterRecord record_ = {.version = 40};
  LeadershipMachine machine_{{.lease = kLease, .id = "me", .address = "host:1"}};
  LeadershipEffects effects_;
};

const Lead kOther = {.epoch = 41, .leader = "other", .address = "host:2", .swap = 1};

TEST_F(LeadershipTest, TheFirstCandidateLeads) {
  Step(LeadershipTick{});
  AnswerRead();
  const auto swap = Take<SwapRegister>();
  EXPECT_FALSE(swap.charter.has_value());
  Carry(swap);
  const auto begin = Take<BeginToLead>();
  EXPECT_EQ(begin.epoch, 41);
  EXPECT_EQ(begin.charter, "");
  EXPECT_TRUE(begin.handed_over);
  EXPECT_EQ(machine_.leads_until(), now_ + seconds(8));
  EXPECT_EQ(InRegister().address, "host:1");
}

TEST_F(LeadershipTest, FollowsALeaderThatRenews) {
  Other(kOther);
  Step(LeadershipTick{});
  AnswerRead();
  const auto follow = Take<FollowLeader>();
  EXPECT_EQ(follow.epoch, 41);
  EXPECT_EQ(follow.address, "host:2");
  for (int i = 0; i < 40; ++i) {
    if (i % 5 == 0) Other(kOther);
    After(seconds(1));
    AnswerRead();
  }
  EXPECT_TRUE(effects_.empty());
  // The connection broke at once: the same leader is named again.
  Step(Disconnected{});
  After(seconds(1));
  AnswerRead();
  EXPECT_EQ(Take<FollowLeader>().epoch, 41);
}

TEST_F(LeadershipTest, DoesNotCountIfTheLeaderIsGone) {
  Other(kOther, "charter 1");
  Step(LeadershipTick{});
  AnswerRead();
  Take<FollowLeader>();
  Step(LeaderGone{40});  // an earlier one
  EXPECT_FALSE(Has<SwapRegister>());
  Step(LeaderGone{41});
  Carry(Take<SwapRegister>());
  const auto begin = Take<BeginToLead>();
  EXPECT_EQ(begin.charter, "charter 1");
  EXPECT_FALSE(begin.handed_over);
  EXPECT_FALSE(begin.fenced);
}

TEST_F(LeadershipTest, ALeaderThatIsNotGoneAfterAllIsFollowed) {
  Other(kOther);
  Step(LeadershipTick{});
  AnswerRead();
  Take<FollowLeader>();
  Step(LeaderGone{41});
  Other(kOther);  // it has renewed its lead, or another candidate leads
  Refuse(Take<SwapRegister>());
  EXPECT_EQ(machine_.state(), LeadershipMachine::State::kSeeking);
}

TEST_F(LeadershipTest, CountsAWholeLeaseFromTheReceiptOfTheLastVersion) {
  Other(kOther, "charter 1");
  Step(LeadershipTick{});
  AnswerRead();
  Take<FollowLeader>();
  for (int i = 0; i < 9; ++i) {
    After(seconds(1));
    AnswerRead();
  }
  Other(kOther, "charter 2");  // after 9 s
  After(milliseconds(999));
  EXPECT_FALSE(Has<ReadRegister>());
  After(milliseconds(1));
  Refuse(Take<SwapRegister>());       // after 10 s: the count begins again
  EXPECT_FALSE(Has<FollowLeader>());  // it is the same leader
  for (int i = 0; i < 9; ++i) {
    After(seconds(1));
    AnswerRead();
    EXPECT_FALSE(Has<SwapRegister>());
  }
  After(milliseconds(999));
  EXPECT_FALSE(Has<SwapRegister>());
  After(milliseconds(1));
  const auto swap = Take<SwapRegister>();
  EXPECT_EQ(swap.version, record_.version);
  Carry(swap);
  const auto begin = Take<BeginToLead>();
  EXPECT_EQ(begin.epoch, 43);
  EXPECT_EQ(begin.charter, "charter 2");
  EXPECT_FALSE(begin.handed_over);
}

TEST_F(LeadershipTest, ARefusedCandidateFollowsTheWinner) {
  Other(kOther);
  Step(LeadershipTick{});
  AnswerRead();
  Take<FollowLeader>();
  for (int i = 0; i < 9; ++i) {
    After(seconds(1));
    AnswerRead();
  }
  After(seconds(1));
  const auto swap = Take<SwapRegister>();
  Other({.epoch = 43, .leader = "third", .address = "host:3", .swap = 1});
  Refuse(swap);
  EXPECT_EQ(Take<FollowLeader>().address, "host:3");
  After(seconds(1));
  EXPECT_FALSE(Has<SwapRegister>());
}

TEST_F(LeadershipTest, ALeaderThatLeavesIsFollowedAtOnce) {
  Lead left = kOther;
  left.state = Lead::State::kLeft;
  Other(left, "charter");
  Step(LeadershipTick{});
  AnswerRead();
  Carry(Take<SwapRegister>());
  const auto begin = Take<BeginToLead>();
  EXPECT_TRUE(begin.handed_over);
  EXPECT_EQ(begin.charter, "charter");
  EXPECT_EQ(begin.epoch, 42);
}

TEST_F(LeadershipTest, AClosedJobIsNotLedAgain) {
  Lead closed = kOther;
  closed.state = Lead::State::kClosed;
  Other(closed, "how it ended");
  Step(LeadershipTick{});
  AnswerRead();
  EXPECT_EQ(Take<JobIsOver>().charter, "how it ended");
  After(seconds(100));
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
}

TEST_F(LeadershipTest, TheLeadCountsFromTheSendingOfTheRenewal) {
  BecomeLeader();
  After(seconds(1));
  const auto swap = Take<SwapRegister>();
  const BootTime sent = now_;
  After(seconds(2));
  Carry(swap);
  EXPECT_EQ(machine_.leads_until(), sent + seconds(8));
  EXPECT_EQ(Take<SwapRegister>().version, record_.version);  // the next renewal is overdue
}

TEST_F(LeadershipTest, ALeadThatIsNotRenewedLapses) {
  BecomeLeader();
  After(seconds(1));
  Take<SwapRegister>();
  EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(7));
  After(milliseconds(6999));
  EXPECT_FALSE(Has<LeadLost>());
  After(milliseconds(1));
  EXPECT_THAT(Take<LeadLost>().why, HasSubstr("8 s"));
  EXPECT_EQ(machine_.state(), State::kSeeking);
}

TEST_F(LeadershipTest, ALateAnswerDoesNotBringTheLeadBack) {
  BecomeLeader();
  After(seconds(1));
  const auto swap = Take<SwapRegister>();
  After(seconds(7));
  Take<LeadLost>();
  Carry(swap);
  EXPECT_FALSE(Has<BeginToLead>());
  EXPECT_EQ(machine_.state(), State::kSeeking);
  // The own record counts like that of another process, but no process connects to it.
  for (int i = 0; i < 9; ++i) {
    AnswerRead();
    After(seconds(1));
  }
  EXPECT_FALSE(Has<FollowLeader>());
  AnswerRead();
  After(seconds(1));
  Carry(Take<SwapRegister>());
  EXPECT_GT(Take<BeginToLead>().epoch, 41);
}

TEST_F(LeadershipTest, ALeaderThatSleptIsNone) {
  BecomeLeader();
  Other({.epoch = 42, .leader = "third", .address = "host:3", .swap = 1});
  After(seconds(60));
  Take<LeadLost>();
  AnswerRead();
  EXPECT_EQ(Take<FollowLeader>().address, "host:3");
}

TEST_F(LeadershipTest, ALostAnswerOfASwapThatHappened) {
  BecomeLeader();
  After(seconds(1));
  const BootTime sent = now_;
  Happen(Take<SwapRegister>());
  now_ += seconds(3);
  Step(SwapDone{absl::DeadlineExceededError("no answer")});
  Take<RegisterFails>();
  After(milliseconds(500));
  Refuse(Take<SwapRegister>());  // it still expects the version before
  EXPECT_EQ(machine_.state(), State::kLeading);
  EXPECT_EQ(machine_.leads_until(), sent + seconds(8));
  const BootTime again = now_;
  Carry(Take<SwapRegister>());
  EXPECT_EQ(machine_.leads_until(), again + seconds(8));
}

TEST_F(LeadershipTest, ALostAnswerOfTheFirstSwapThatHappened) {
  Step(LeadershipTick{});
  AnswerRead();
  const BootTime sent = now_;
  Happen(Take<SwapRegister>());
  now_ += seconds(3);
  Step(SwapDone{absl::DeadlineExceededError("no answer")});
  Take<RegisterFails>();
  After(milliseconds(500));
  Refuse(Take<SwapRegister>());
  EXPECT_EQ(Take<BeginToLead>().epoch, 41);
  EXPECT_EQ(machine_.leads_until(), sent + seconds(8));
}

TEST_F(LeadershipTest, ALostAnswerThatIsFoundTooLateIsNoLead) {
  Step(LeadershipTick{});
  AnswerRead();
  Happen(Take<SwapRegister>());
  now_ += seconds(9);
  Step(SwapDone{absl::DeadlineExceededError("no answer")});
  After(milliseconds(500));
  Refuse(Take<SwapRegister>());
  EXPECT_FALSE(Has<BeginToLead>());
  EXPECT_EQ(machine_.state(), State::kSeeking);
}

TEST_F(LeadershipTest, ARegisterThatSaysForALeaseThatItIsLostIsLost) {
  Step(LeadershipTick{});
  const auto fails = [this](const absl::Status& why) {
    Take<ReadRegister>();
    Step(ReadDone{why});
    const bool lost = Take<RegisterFails>().lost;
    After(seconds(4));
    return lost;
  };
  const absl::Status gone = absl::DataLossError("voters have exited");
  EXPECT_FALSE(fails(gone));
  EXPECT_FALSE(fails(gone));
  EXPECT_FALSE(fails(absl::UnavailableError("no answer")));  // somebody may have an answer after all
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(fails(gone));
  EXPECT_TRUE(fails(gone));
}

TEST_F(LeadershipTest, ChartersAreWrittenAtOnceAndInOrder) {
  BecomeLeader();
  Step(CharterChanged{"one"});
  const auto first = Take<SwapRegister>();
  EXPECT_EQ(first.charter, "one");
  Step(CharterChanged{"two"});
  Step(CharterChanged{"three"});
  EXPECT_FALSE(Has<SwapRegister>());
  Carry(first);
  EXPECT_EQ(Take<CharterWritten>().number, 1);
  const auto second = Take<SwapRegister>();
  EXPECT_EQ(second.charter, "three");
  Carry(second);
  EXPECT_EQ(Take<CharterWritten>().number, 3);
  After(seconds(1));
  EXPECT_EQ(Take<SwapRegister>().charter, std::nullopt);
}

TEST_F(LeadershipTest, ACharterWhoseAnswerIsLostIsKnownToBeWritten) {
  BecomeLeader();
  Step(CharterChanged{"one"});
  Happen(Take<SwapRegister>());
  Step(CharterChanged{"two"});
  Step(SwapDone{absl::UnavailableError("gone")});
  EXPECT_FALSE(Has<SwapRegister>());
  After(milliseconds(500));
  const auto retry = Take<SwapRegister>();
  EXPECT_EQ(retry.charter, "two");
  Refuse(retry);
  EXPECT_EQ(Take<CharterWritten>().number, 1);
  Carry(Take<SwapRegister>());
  EXPECT_EQ(Take<CharterWritten>().number, 2);
  EXPECT_EQ(record_.charter, "two");
}

TEST_F(LeadershipTest, ADeposedLeaderSaysSo) {
  BecomeLeader();
  Step(CharterChanged{"one"});
  const auto swap = Take<SwapRegister>();
  Other({.epoch = 42, .leader = "third", .address = "host:3", .swap = 1});
  Refuse(swap);
  EXPECT_THAT(Take<LeadLost>().why, HasSubstr("host:3, leads the job since epoch 42"));
  EXPECT_FALSE(Has<CharterWritten>());
  EXPECT_EQ(Take<FollowLeader>().address, "host:3");
}

TEST_F(LeadershipTest, ARemovedRecordEndsTheLead) {
  BecomeLeader();
  After(seconds(1));
  const auto swap = Take<SwapRegister>();
  record_ = {.version = ++version_};
  Refuse(swap);
  EXPECT_THAT(Take<LeadLost>().why, HasSubstr("removed"));
}

TEST_F(LeadershipTest, LeavesWithALastSwap) {
  BecomeLeader();
  After(seconds(1));
  const auto renewal = Take<SwapRegister>();
  Step(LeaderEnds{Lead::State::kLeft});
  EXPECT_EQ(machine_.state(), State::kLeaving);
  Carry(renewal);
  EXPECT_FALSE(Has<LeadEnded>());
  Carry(Take<SwapRegister>());
  EXPECT_TRUE(Take<LeadEnded>().written);
  EXPECT_EQ(InRegister().state, Lead::State::kLeft);
  EXPECT_EQ(machine_.state(), State::kEnded);
}

TEST_F(LeadershipTest, DoesNotWaitForARegisterThatFailsWhenItLeaves) {
  BecomeLeader();
  Step(LeaderEnds{Lead::State::kClosed});
  Take<SwapRegister>();
  Step(SwapDone{absl::UnavailableError("gone")});
  After(milliseconds(500));
  Take<SwapRegister>();
  After(milliseconds(7500));
  EXPECT_FALSE(Take<LeadEnded>().written);
  EXPECT_FALSE(Has<LeadLost>());
  EXPECT_EQ(machine_.state(), State::kEnded);
}

TEST_F(LeadershipTest, OnlyAStandbyReadsWhileItFollows) {
  Other(kOther);
  Step(LeadershipTick{});
  AnswerRead();
  Take<FollowLeader>();
  Step(Connected{.standby = false});
  EXPECT_EQ(machine_.NextDeadline(), std::nullopt);
  After(seconds(100));
  EXPECT_TRUE(effects_.empty());
  Other(kOther);
  Step(Connected{.standby = true});
  Refuse(Take<SwapRegister>());
  EXPECT_FALSE(Has<FollowLeader>());
  for (int i = 0; i < 9; ++i) {
    After(seconds(1));
    AnswerRead();
  }
  After(seconds(1));
  Carry(Take<SwapRegister>());
  EXPECT_FALSE(Take<BeginToLead>().handed_over);
}

TEST_F(LeadershipTest, AForeignRecordIsLeftAlone) {
  record_ = {++version_, true, "someone else's", ""};
  Step(LeadershipTick{});
  AnswerRead();
  EXPECT_THAT(Take<RegisterFails>().why.message(), HasSubstr("not the lead of a ddprun job"));
  for (int i = 0; i < 30; ++i) {
    After(seconds(1));
    AnswerRead();
    Take<RegisterFails>();
  }
  EXPECT_TRUE(effects_.empty());
}

TEST_F(LeadershipTest, ARegisterThatFailsIsAskedAgain) {
  Step(LeadershipTick{});
  for (int i = 0; i < 3; ++i) {
    Take<ReadRegister>();
    Step(ReadDone{absl::UnavailableError("connection refused")});
    Take<RegisterFails>();
    EXPECT_EQ(machine_.NextDeadline(), now_ + seconds(1));
    After(seconds(1));
  }
  AnswerRead();
  Carry(Take<SwapRegister>());
  Take<BeginToLead>();
}

}  // namespace
}  // namespace ddprun
