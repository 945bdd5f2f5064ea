#include "rendezvous/voters/founding.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FakeTimer final : public WakeTimer {
 public:
  TimePoint Now() const override { return now_; }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    at_ = at;
    wake_ = std::move(wake);
  }
  void Advance(Duration d) {
    for (const TimePoint end = now_ + d; at_ && *at_ <= end;) {
      now_ = std::max(now_, *at_);
      at_.reset();
      std::exchange(wake_, {})();
    }
    now_ += d;
  }

 private:
  TimePoint now_ = TimePoint(seconds(1000));
  std::optional<TimePoint> at_;
  std::function<void()> wake_;
};

// Keeps the requests until the test answers them.
class FakeClient final : public VoteClient {
 public:
  void Send(const std::string& address, const VoteRequest& request, Duration /*limit*/,
            std::function<void(absl::StatusOr<VoteReply>)> done) override {
    EXPECT_TRUE(request.wants_voters);
    EXPECT_EQ(request.kind, VoteRequest::Kind::kAsk);
    asked[address] = std::move(done);
  }
  std::map<std::string, std::function<void(absl::StatusOr<VoteReply>)>> asked;
};

class FoundingTest : public testing::Test {
 protected:
  FoundingTest() {
    auto timer = std::make_unique<FakeTimer>();
    timer_ = timer.get();
    founding_.emplace(Voter{"B", "b:1"}, std::vector<std::string>{"a:1", "b:1", "c:1"}, &client_,
                      std::move(timer));
    founding_->Start(seconds(10), [this](absl::StatusOr<VoterSet> result) { result_ = std::move(result); });
    timer_->Advance(Duration(0));
  }
  void Answer(const std::string& address, const absl::StatusOr<VoteReply>& reply) {
    client_.asked.at(address)(reply);
  }

  FakeClient client_;
  FakeTimer* timer_ = nullptr;
  std::optional<Founding> founding_;
  std::optional<absl::StatusOr<VoterSet>> result_;
};

TEST_F(FoundingTest, AllFoundersAreVotersInTheOrderOfTheirAddresses) {
  Answer("c:1", VoteReply{.voter = "C"});
  EXPECT_FALSE(result_);
  Answer("a:1", VoteReply{.voter = "A"});
  ASSERT_TRUE(result_);
  EXPECT_EQ(**result_,
            (VoterSet{.number = 1,
                      .now = {.voters = {{"A", "a:1"}, {"B", "b:1"}, {"C", "c:1"}}, .tie_breaker = "A"}}));
}

TEST_F(FoundingTest, ItDoesNotAskItself) { EXPECT_FALSE(client_.asked.contains("b:1")); }

TEST_F(FoundingTest, ARegisterThatExistsIsNotFoundedAgain) {
  const VoterSet voters{.number = 7, .now = {.voters = {{"X", "x:1"}}, .tie_breaker = "X"}};
  Answer("a:1", VoteReply{.voter = "A"});
  Answer("c:1", VoteReply{.voter = "C", .voters = voters});
  ASSERT_TRUE(result_);
  EXPECT_EQ(**result_, voters);
}

TEST_F(FoundingTest, ItMayLearnThatTheRegisterExists) {
  founding_->Learn({.number = 3});
  ASSERT_TRUE(result_);
  EXPECT_EQ((*result_)->number, 3);
  founding_->Learn({.number = 4});
  EXPECT_EQ((*result_)->number, 3);
}

TEST_F(FoundingTest, AFounderThatWasStartedAgainHasANewId) {
  Answer("a:1", VoteReply{.voter = "A"});
  timer_->Advance(milliseconds(200));
  Answer("a:1", VoteReply{.voter = "A2"});
  Answer("c:1", VoteReply{.voter = "C"});
  ASSERT_TRUE(result_);
  EXPECT_EQ((*result_)->now.voters[0].id, "A2");
}

TEST_F(FoundingTest, TheErrorNamesTheFoundersThatHaveNotAnswered) {
  Answer("a:1", VoteReply{.voter = "A"});
  Answer("c:1", absl::UnavailableError("connection refused"));
  timer_->Advance(seconds(11));
  ASSERT_TRUE(result_);
  EXPECT_TRUE(absl::IsUnavailable(result_->status()));
  EXPECT_THAT(std::string(result_->status().message()),
              AllOf(HasSubstr("within 10 s: c:1: connection refused. "), Not(HasSubstr("a:1"))));
}

TEST_F(FoundingTest, AnswersAfterTheEndHaveNoEffect) {
  timer_->Advance(seconds(11));
  Answer("a:1", VoteReply{.voter = "A"});
  Answer("c:1", VoteReply{.voter = "C"});
  EXPECT_FALSE(result_->ok());
  founding_.reset();
  Answer("c:1", VoteReply{.voter = "C"});
}

}  // namespace
}  // namespace ddprun
