#include "base/event.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TimePoint In(Duration d) { return std::chrono::steady_clock::now() + d; }

TEST(EventTest, WaitsForAnotherThread) {
  Event event;
  int result = 0;
  std::thread other([&] {
    result = 42;
    event.Set();
  });
  event.Wait();
  EXPECT_EQ(result, 42);
  EXPECT_TRUE(event.WaitUntil(In(seconds(0)))) << "the event is set";
  other.join();
}

TEST(EventTest, WaitUntilReportsAnExpiredDeadline) {
  Event event;
  const TimePoint deadline = In(milliseconds(1));
  EXPECT_FALSE(event.WaitUntil(deadline));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  event.Set();
  EXPECT_TRUE(event.WaitUntil(deadline)) << "a set event counts, even after the deadline";
}

}  // namespace
}  // namespace ddprun
