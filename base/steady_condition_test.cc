#include "base/steady_condition.h"

#include <gtest/gtest.h>

#include <thread>

namespace ddprun {
namespace {

TEST(SteadyConditionTest, ANotificationEndsTheWait) {
  std::mutex mu;
  SteadyCondition changed;
  bool set = false, answered = false;
  std::thread thread([&] {
    std::unique_lock lock(mu);
    changed.wait(lock, [&] { return set; });
    answered = true;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mu);
    set = true;
    changed.notify_one();
    EXPECT_TRUE(changed.wait_for(lock, seconds(60), [&] { return answered; }));
  }
  thread.join();
}

TEST(SteadyConditionTest, AWaitEndsAtItsDeadline) {
  std::mutex mu;
  SteadyCondition changed;
  std::unique_lock lock(mu);
  const TimePoint start = std::chrono::steady_clock::now();
  EXPECT_FALSE(changed.wait_until(lock, start + milliseconds(30), [] { return false; }));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
  EXPECT_FALSE(changed.wait_until(lock, TimePoint::min(), [] { return false; }));
  EXPECT_TRUE(changed.wait_until(lock, TimePoint::min(), [] { return true; }));
}

}  // namespace
}  // namespace ddprun
