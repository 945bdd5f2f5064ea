#include "base/event.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

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
  EXPECT_TRUE(event.WaitUntil(In(seconds(0))));
  other.join();
}

TEST(EventTest, WaitUntilReportsAnExpiredDeadline) {
  Event event;
  const TimePoint deadline = In(milliseconds(1));
  EXPECT_FALSE(event.WaitUntil(deadline));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  event.Set();
  EXPECT_TRUE(event.WaitUntil(deadline)) << "a set event must be reported even after the deadline";
}

TEST(EventTest, AcceptsTheEarliestAndTheLatestDeadline) {
  Event event;
  EXPECT_FALSE(event.WaitUntil(TimePoint::min()));
  EXPECT_FALSE(event.WaitUntil(TimePoint()));
  std::thread other([&] { event.Set(); });
  EXPECT_TRUE(event.WaitUntil(TimePoint::max()));
  other.join();
}

TEST(EventTest, SetWakesAllWaitingThreads) {
  for (int i = 0; i < 200; ++i) {
    Event event;
    std::atomic<int> seen = 0;
    std::vector<std::thread> waiting;
    for (int t = 0; t < 3; ++t) {
      waiting.emplace_back([&, t] {
        if (t % 2 == 0) event.Wait();
        seen += event.WaitUntil(In(seconds(60)));
      });
    }
    event.Set();
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(seen, 3);
  }
}

}  // namespace
}  // namespace ddprun
