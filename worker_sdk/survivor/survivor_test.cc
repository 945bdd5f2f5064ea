#include "worker_sdk/survivor/survivor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "base/worker_message.h"
#include "ddprun/status.h"
#include "worker_sdk/agent_channel.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Status kGone = UnavailableError("rank 2 of round 7 is gone");

WorkerEnv Env() {
  WorkerEnv env;
  env.round = Round(7);
  env.rank = Rank(5);
  env.local_rank = LocalRank(1);
  env.world_size = 6;
  return env;
}

AgentRequest Agrees(int64_t round) { return {.round = Round(round), .may_survive = true}; }
AgentRequest Over(int64_t round) { return {.round = Round(round), .may_survive = true, .round_over = true}; }
RoundOffer Offer(int64_t round) {
  return {.round = Round(round), .rank = Rank(0), .group_rank = GroupRank(0), .world_size = 1};
}

// What the hooks were called with.
class Calls {
 public:
  SurvivorHooks Hooks() {
    return {.end_round = [this](const Status& why) { Add(StrCat("end: ", why.message())); },
            .on_request = [this](const AgentRequest& r) { Add(StrCat("request ", r.round.value())); },
            .left =
                [this](Round round) {
                  Add(StrCat("left ", round.value()));
                  on_left_();
                },
            .begin = [this](const RoundOffer& offer) { Add(StrCat("begin ", offer.round.value())); }};
  }
  void OnLeft(std::function<void()> call) { on_left_ = std::move(call); }
  // All of them since the last call, once `num` have been made.
  std::vector<std::string> Await(size_t num) {
    std::unique_lock<std::mutex> lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(30), [&] { return calls_.size() >= num; }));
    return std::exchange(calls_, {});
  }

 private:
  void Add(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mu_);
    calls_.push_back(call);
    changed_.notify_all();
  }
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;
  std::function<void()> on_left_ = [] {};
};

// Returns once NextRound may be called.
void AwaitConsent(const Survivor& survivor) {
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
  while (!survivor.WhyNot(kGone).ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << survivor.WhyNot(kGone);
    std::this_thread::yield();
  }
}

class SurvivorTest : public testing::Test {
 protected:
  SurvivorTest() { agent_.Listen(); }
  void Register() {
    survivor_.emplace(&channel_, Env(), calls_.Hooks());
    asked_ = agent_.AwaitSurvival(SurvivalState::kAsks);
    ASSERT_TRUE(asked_.has_value());
    agent_.Ask(Agrees(7));
    AwaitConsent(*survivor_);
    EXPECT_THAT(calls_.Await(1), ElementsAre("request 7"));
  }
  static std::string Report() {
    return Encode(WorkerReport{.round = Round(7), .rank = Rank(5), .local_rank = LocalRank(1)});
  }
  // Connects again if the agent has hung up.
  void SendReport() {
    while (!channel_.TrySend(Report())) {
    }
  }
  void Leave() {
    ASSERT_EQ(survivor_->Leave(kGone), OkStatus());
    EXPECT_THAT(calls_.Await(1),
                ElementsAre("end: rank 5 of round 7 gave up: the round is over: rank 2 of round 7 is gone"));
  }

  FakeAgent agent_;
  AgentChannel channel_{agent_.name()};
  Calls calls_;
  std::optional<WorkerSurvival> asked_;
  std::optional<Survivor> survivor_;
};

TEST_F(SurvivorTest, AsksParksAndEntersTheNextRound) {
  Register();
  EXPECT_EQ(*asked_, (WorkerSurvival{.round = Round(7),
                                     .rank = Rank(5),
                                     .local_rank = LocalRank(1),
                                     .pid = getpid(),
                                     .state = SurvivalState::kAsks}));
  Leave();
  EXPECT_FALSE(agent_.NextSurvival().has_value()) << "not parked before the caller has given up the round";
  std::thread next([&] { EXPECT_EQ(survivor_->AwaitRound(), OkStatus()); });
  const std::optional<WorkerSurvival> parked = agent_.AwaitSurvival(SurvivalState::kParked);
  ASSERT_TRUE(parked.has_value());
  EXPECT_EQ(parked->round, Round(7));
  EXPECT_EQ(parked->message, "UNAVAILABLE: rank 2 of round 7 is gone");
  EXPECT_THAT(calls_.Await(1), ElementsAre("left 7"));
  agent_.Offer(Offer(8));
  next.join();
  EXPECT_THAT(calls_.Await(1), ElementsAre("begin 8"));
  EXPECT_TRUE(survivor_->WhyNot(kGone).ok());

  // The thread still reads.
  agent_.Ask(Over(8));
  EXPECT_THAT(
      calls_.Await(2),
      ElementsAre("request 8", "end: rank 0 of round 8 gave up: the round is over: its agent has ended it"));
  // A new connection asks for the new round.
  agent_.HangUp();
  SendReport();
  EXPECT_EQ(agent_.AwaitSurvival(SurvivalState::kAsks)->round, Round(8));
}

TEST_F(SurvivorTest, ARoundThatIsOverBeforeItBeganIsSkipped) {
  Register();
  Leave();
  Event may_send;  // that it is parked
  calls_.OnLeft([&] { may_send.Wait(); });
  std::thread next([&] { EXPECT_EQ(survivor_->AwaitRound(), OkStatus()); });
  EXPECT_THAT(calls_.Await(1), ElementsAre("left 7"));
  agent_.Offer(Offer(8));
  agent_.Ask(Over(8));
  agent_.Ask(Over(8));
  EXPECT_THAT(calls_.Await(2), ElementsAre("request 8", "request 8")) << "the first one is processed";
  may_send.Set();
  EXPECT_EQ(agent_.AwaitSurvival(SurvivalState::kParked)->round, Round(7));
  EXPECT_EQ(agent_.AwaitSurvival(SurvivalState::kParked)->round, Round(8));
  EXPECT_THAT(calls_.Await(1), ElementsAre("left 8")) << "and not: begin 8";
  agent_.Offer(Offer(9));
  next.join();
  EXPECT_THAT(calls_.Await(1), ElementsAre("begin 9"));
}

TEST_F(SurvivorTest, WhileTheCallerGivesUpARoundNothingIsLost) {
  Register();
  Leave();
  agent_.Ask(Over(7));
  agent_.Ask({.round = Round(7), .may_survive = true, .no_round_follows = true});
  EXPECT_THAT(calls_.Await(2), ElementsAre("request 7", "request 7"));
  // The hook is called before the rules are applied: the next event proves that they are.
  while (survivor_->WhyNot(kGone).message().find("no round follows") == std::string::npos) {
    std::this_thread::yield();
  }
  const Status status = survivor_->AwaitRound();
  EXPECT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("no round follows round 7"));
  EXPECT_FALSE(agent_.NextSurvival().has_value());
}

TEST_F(SurvivorTest, ParkedIsNotLostWhenTheAgentIsSlow) {
  Register();
  while (channel_.TrySend(Report())) {
  }
  Leave();
  std::thread next([&] { EXPECT_EQ(survivor_->AwaitRound(), OkStatus()); });
  ASSERT_TRUE(agent_.AwaitSurvival(SurvivalState::kParked).has_value());
  agent_.Offer(Offer(8));
  next.join();
}

TEST_F(SurvivorTest, AParkedWorkerWithoutItsAgentFails) {
  Register();
  Leave();
  Status status;
  std::thread next([&] { status = survivor_->AwaitRound(); });
  ASSERT_TRUE(agent_.AwaitSurvival(SurvivalState::kParked).has_value());
  agent_.HangUp();
  next.join();
  EXPECT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("the connection to the agent was lost in round 7"));
  EXPECT_FALSE(survivor_->WhyNot(status).ok());
}

TEST_F(SurvivorTest, AnAgentThatIsGoneWhenTheWorkerParksIsAnError) {
  Register();
  Leave();
  agent_.HangUp();
  const Status status = survivor_->AwaitRound();
  EXPECT_TRUE(IsFailedPrecondition(status)) << status;
}

TEST_F(SurvivorTest, ANewConnectionNeedsANewConsent) {
  Register();
  agent_.HangUp();
  while (survivor_->WhyNot(kGone).ok()) std::this_thread::yield();
  EXPECT_TRUE(IsFailedPrecondition(survivor_->Leave(kGone)));
  SendReport();
  ASSERT_TRUE(agent_.AwaitSurvival(SurvivalState::kAsks).has_value());
  EXPECT_FALSE(survivor_->WhyNot(kGone).ok());
  agent_.Ask(Agrees(7));
  AwaitConsent(*survivor_);
}

TEST(SurvivorWithoutAnAgentTest, HasNoEffect) {
  AgentChannel channel(FakeAgent().name());
  Calls calls;
  Survivor survivor(&channel, Env(), calls.Hooks());
  EXPECT_THAT(survivor.WhyNot(kGone).message(), HasSubstr("the agent has not agreed"));
  EXPECT_TRUE(IsFailedPrecondition(survivor.Leave(kGone)));
}

}  // namespace
}  // namespace ddprun
