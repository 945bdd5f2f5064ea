#include "launcher/observers/health_page.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using State = AgentMachine::State;

constexpr TimePoint kNow{seconds(1000)};

Health Running() {
  return {.state = State::kRunning, .round = Round(3), .workers = 2, .last_turn = kNow - milliseconds(200)};
}

TEST(HealthPageTest, ARunningNodeIsHealthy) {
  const HealthPage page = PageOf(Running(), kNow);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.json,
            "{\"healthy\": true, \"state\": \"running\", \"round\": 3, \"workers_running\": 2, "
            "\"seconds_since_last_turn\": 0.2}\n");
}

TEST(HealthPageTest, ANodeWithoutARoundIsHealthy) {
  for (const State state : {State::kIdle, State::kStopping, State::kFinished}) {
    EXPECT_EQ(PageOf({.state = state, .last_turn = kNow}, kNow).status, 200);
  }
}

TEST(HealthPageTest, IsUnhealthyWithoutACoordinator) {
  const HealthPage page = PageOf({.state = State::kSeeking, .last_turn = kNow}, kNow);
  EXPECT_EQ(page.status, 503);
  EXPECT_THAT(page.json, HasSubstr("{\"healthy\": false, \"state\": \"looking for the coordinator\""));
  EXPECT_THAT(page.json, HasSubstr("\"reason\": \"the connection to the coordinator is lost"));
}

TEST(HealthPageTest, IsUnhealthyWithUnkillableProcesses) {
  Health health = Running();
  health.unkillable = {"process 7 (\"cat\") in state D"};
  const HealthPage page = PageOf(health, kNow);
  EXPECT_EQ(page.status, 503);
  EXPECT_THAT(page.json, HasSubstr("process 7 (\\\"cat\\\") in state D"));
}

TEST(HealthPageTest, IsUnhealthyWhenTheLoopHangs) {
  EXPECT_EQ(PageOf(Running(), kNow + seconds(59)).status, 200);
  const HealthPage page = PageOf(Running(), kNow + seconds(60));
  EXPECT_EQ(page.status, 503);
  EXPECT_THAT(page.json, HasSubstr("has not run for 60 s"));
  EXPECT_THAT(page.json, HasSubstr("\"seconds_since_last_turn\": 60.2"));
}

}  // namespace
}  // namespace ddprun
