#include "launcher/agent/countdown.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A timer whose clock is set by the test.
class FakeTimer final : public WakeTimer {
 public:
  TimePoint Now() const override { return now; }
  void Set(std::optional<TimePoint> at, std::function<void()> wake) override {
    at_ = at;
    wake_ = std::move(wake);
  }
  void AdvanceTo(TimePoint end) {
    while (at_ && *at_ <= end) {
      now = *std::exchange(at_, std::nullopt);
      std::exchange(wake_, nullptr)();
    }
    now = end;
  }

  TimePoint now{seconds(1000)};

 private:
  std::optional<TimePoint> at_;
  std::function<void()> wake_;
};

class CountdownTest : public ::testing::Test {
 protected:
  CountdownTest() : countdown_(std::unique_ptr<WakeTimer>(timer_), [this](Duration left) { Said(left); }) {}
  void Said(Duration left) { said_.push_back(static_cast<int>(left / seconds(1))); }
  void Advance(Duration d) { timer_->AdvanceTo(timer_->now + d); }

  FakeTimer* const timer_ = new FakeTimer;  // owned by countdown_
  Countdown countdown_;
  std::vector<int> said_;
};

TEST_F(CountdownTest, ReportsRemainingTimeAtEachMark) {
  countdown_.Start(seconds(30));
  Advance(milliseconds(9999));
  EXPECT_THAT(said_, IsEmpty());
  Advance(seconds(60));
  EXPECT_THAT(said_, ElementsAre(20, 10, 5, 3, 2, 1));
}

TEST_F(CountdownTest, StartReplacesTheRunningCountdown) {
  countdown_.Start(seconds(30));
  Advance(seconds(12));
  countdown_.Start(seconds(4));
  Advance(seconds(60));
  EXPECT_THAT(said_, ElementsAre(20, 3, 2, 1));
}

TEST_F(CountdownTest, StopEndsTheCountdown) {
  countdown_.Start(seconds(30));
  Advance(seconds(12));
  countdown_.Stop();
  Advance(seconds(60));
  EXPECT_THAT(said_, ElementsAre(20));
}

TEST_F(CountdownTest, ReportsNothingInTheLastSecond) {
  countdown_.Start(seconds(1));
  Advance(seconds(60));
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace ddprun
