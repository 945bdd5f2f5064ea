#include "launcher/monitor/timer_table.h"

#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }

void Set(TimerTable& table, pid_t pid, const std::string& scope, int ms, int signo = SIGKILL) {
  EXPECT_TRUE(table.Set(pid, scope, At(ms), signo).ok());
}

TEST(TimerTableTest, ATimerExpiresOnceAtItsDeadline) {
  TimerTable table;
  EXPECT_EQ(table.NextDeadline(), std::nullopt);
  Set(table, 1, "a", 10);
  EXPECT_EQ(table.NextDeadline(), At(10));
  EXPECT_THAT(table.Expire(At(9)), IsEmpty());
  EXPECT_THAT(table.Expire(At(10)), ElementsAre(ExpiredTimers{.pid = 1, .timers = {{"a", At(10), SIGKILL}}}));
  EXPECT_EQ(table.NextDeadline(), std::nullopt);
  EXPECT_THAT(table.Expire(At(1000)), IsEmpty());
}

TEST(TimerTableTest, AReleasedTimerDoesNotExpire) {
  TimerTable table;
  Set(table, 1, "a", 10);
  Set(table, 2, "a", 20);
  table.Release(1, "a");
  table.Release(1, "never set");
  EXPECT_FALSE(table.Has(1));
  EXPECT_EQ(table.NextDeadline(), At(20));
  EXPECT_THAT(table.Expire(At(30)), ElementsAre(testing::Field(&ExpiredTimers::pid, 2)));
}

TEST(TimerTableTest, SettingATimerAgainReplacesDeadlineAndSignal) {
  TimerTable table;
  Set(table, 1, "a", 10, SIGKILL);
  Set(table, 1, "a", 30, SIGTERM);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_THAT(table.Expire(At(20)), IsEmpty());
  EXPECT_THAT(table.Expire(At(30)), ElementsAre(ExpiredTimers{.pid = 1, .timers = {{"a", At(30), SIGTERM}}}));
}

TEST(TimerTableTest, TheEarliestTimerWithASignalIsDecisiveForItsProcess) {
  TimerTable table;
  Set(table, 1, "late", 30, SIGTERM);
  Set(table, 1, "early", 20, SIGKILL);
  Set(table, 1, "no signal", 10, 0);
  Set(table, 1, "not yet", 99, SIGINT);
  Set(table, 2, "other", 15, 0);
  Set(table, 3, "not yet", 99, SIGINT);
  const std::vector<ExpiredTimers> expired = table.Expire(At(50));
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(
      expired[0],
      (ExpiredTimers{
          .pid = 1,
          .timers = {{"no signal", At(10), 0}, {"early", At(20), SIGKILL}, {"late", At(30), SIGTERM}}}));
  EXPECT_EQ(expired[0].Decisive()->scope, "early");
  EXPECT_EQ(expired[1].pid, 2);
  EXPECT_EQ(expired[1].Decisive(), nullptr);
  EXPECT_FALSE(table.Has(1));
  EXPECT_TRUE(table.Has(3));
}

TEST(TimerTableTest, ForgetRemovesAllTimersOfTheProcess) {
  TimerTable table;
  Set(table, 1, "a", 10);
  Set(table, 1, "b", 20);
  Set(table, 2, "a", 30);
  table.Forget(1);
  table.Forget(7);
  EXPECT_EQ(table.NextDeadline(), At(30));
  EXPECT_EQ(table.size(), 1u);
}

TEST(TimerTableTest, ReplacingATimerIsAllowedAtTheLimit) {
  TimerTable table(/*max_timers=*/2);
  Set(table, 1, "a", 10);
  Set(table, 1, "b", 10);
  const absl::Status third = table.Set(2, "a\n\x1b[2J", At(5), SIGKILL);
  EXPECT_TRUE(absl::IsResourceExhausted(third));
  EXPECT_EQ(third.message(), R"(timer "a\n\033[2J" of process 2 is ignored: 2 timers are already running)")
      << "control characters must be escaped";
  EXPECT_EQ(table.NextDeadline(), At(10));
  Set(table, 1, "a", 20);
  table.Release(1, "b");
  Set(table, 2, "a", 5);
}

// The reference implementation is a map without an index by deadline.
TEST(TimerTableTest, MatchesAReferenceForRandomOperations) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  TimerTable table;
  std::map<std::pair<pid_t, std::string>, int> reference;
  int now = 0;
  for (int i = 0; i < 20'000; ++i) {
    const pid_t pid = 1 + pick(4);
    const std::string scope(1, static_cast<char>('a' + pick(3)));
    switch (pick(5)) {
      case 0:
      case 1: {
        const int deadline = now + pick(50);
        Set(table, pid, scope, deadline);
        reference[{pid, scope}] = deadline;
        break;
      }
      case 2:
        table.Release(pid, scope);
        reference.erase({pid, scope});
        break;
      case 3:
        table.Forget(pid);
        std::erase_if(reference, [&](const auto& t) { return t.first.first == pid; });
        break;
      case 4: {
        now += pick(20);
        std::map<pid_t, size_t> expected;
        for (const auto& [key, deadline] : reference) {
          if (deadline <= now) ++expected[key.first];
        }
        std::map<pid_t, size_t> expired;
        for (const ExpiredTimers& e : table.Expire(At(now))) expired[e.pid] = e.timers.size();
        ASSERT_EQ(expired, expected) << "seed " << seed << ", step " << i;
        std::erase_if(reference, [&](const auto& t) { return expected.contains(t.first.first); });
        break;
      }
    }
    std::optional<TimePoint> next;
    for (const auto& [key, deadline] : reference) next = std::min(next.value_or(At(deadline)), At(deadline));
    ASSERT_EQ(table.NextDeadline(), next) << "seed " << seed << ", step " << i;
    ASSERT_EQ(table.size(), reference.size());
  }
}

}  // namespace
}  // namespace ddprun
