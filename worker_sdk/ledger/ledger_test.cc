#include "worker_sdk/ledger/ledger.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kDay = 1'795'248'000 * kSecond;  // an arbitrary wall clock time

// Returns the entry of a process of `round` that began `begin_s` seconds after kDay. The process spent 1 s on
// rendezvous, 1 s on each step, 0.5 s on snapshots and 0.25 s on other work.
LedgerEntry Entry(int64_t round, int64_t restart_count, int64_t begin_s, int64_t first_step,
                  int64_t last_step) {
  return {.job = 7,
          .round = round,
          .restart_count = restart_count,
          .world_size = 4,
          .begin_us = kDay + begin_s * kSecond,
          .spent_us = {kSecond, (last_step - first_step) * kSecond, kSecond / 2, kSecond / 4},
          .first_step = first_step,
          .last_step = last_step};
}

TEST(LedgerTest, OneProcessHasNoGaps) {
  const Balance b = BalanceOf(std::vector<LedgerEntry>{Entry(0, 0, 0, 0, 8)});
  EXPECT_EQ(b.processes, 1);
  EXPECT_EQ(b.steps, 8);
  EXPECT_EQ(b.lost_steps, 0);
  EXPECT_EQ(b.in_steps, seconds(8));
  EXPECT_EQ(b.in_rendezvous, seconds(1));
  EXPECT_EQ(b.in_snapshots, milliseconds(500));
  EXPECT_EQ(b.in_other, milliseconds(250));
  EXPECT_EQ(b.total(), milliseconds(9750));
  EXPECT_DOUBLE_EQ(b.goodput(), 8 / 9.75);
}

TEST(LedgerTest, WithoutEntriesEverythingIsZero) {
  const Balance b = BalanceOf({});
  EXPECT_EQ(b.total(), Duration::zero());
  EXPECT_EQ(b.goodput(), 0);
}

// The first process does 10 steps and ends at 11.5 s. A second process starts 1.5 s later and continues from
// step 8.
TEST(LedgerTest, AFailureCostsItsGapAndTheStepsAfterTheSnapshot) {
  std::vector<LedgerEntry> entries = {Entry(1, 0, 0, 0, 10), Entry(2, 1, 13, 8, 20)};
  entries[0].spent(Activity::kOther) = 0;  // ends at 11.5 s
  const Balance b = BalanceOf(entries);
  EXPECT_EQ(b.restarts, 1);
  EXPECT_EQ(b.in_restart, milliseconds(1500));
  EXPECT_EQ(b.waits + b.downs, 0);
  EXPECT_EQ(b.steps, 20);
  EXPECT_EQ(b.lost_steps, 2);
  EXPECT_EQ(b.in_steps, seconds(20));
  EXPECT_EQ(b.in_lost_steps, seconds(2));
  EXPECT_EQ(b.total(), seconds(13 + 13) + milliseconds(750));
}

TEST(LedgerTest, TheRestartCountDistinguishesFailuresFromChangesOfMembership) {
  const Balance b = BalanceOf(std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 0), Entry(2, 0, 10, 0, 0),
                                                       Entry(4, 2, 30, 0, 0), Entry(5, 2, 60, 0, 0)});
  EXPECT_EQ(b.waits, 2);
  EXPECT_EQ(b.in_waiting, milliseconds(8250 + 28250));
  EXPECT_EQ(b.restarts, 1);
  EXPECT_EQ(b.in_restart, milliseconds(18250));
}

// The second process belongs to a new start of the job, whose rounds are numbered from 0 again. The third
// process belongs to a job with a different name.
TEST(LedgerTest, TheTimeBetweenTwoStartsOfTheJobDoesNotCount) {
  std::vector<LedgerEntry> entries = {Entry(3, 2, 0, 0, 0), Entry(0, 0, 1000, 0, 0), Entry(1, 0, 2000, 0, 0)};
  entries[2].job = 8;
  const Balance b = BalanceOf(entries);
  EXPECT_EQ(b.downs, 2);
  EXPECT_EQ(b.down, 2 * milliseconds(998250));
  EXPECT_EQ(b.total(), 3 * milliseconds(1750));
}

// The third process begins at an earlier step than the second, because the newest snapshot was torn.
TEST(LedgerTest, AStepIsLostIfAnyLaterProcessRepeatsIt) {
  const Balance b = BalanceOf(
      std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 100), Entry(2, 1, 200, 80, 90), Entry(3, 2, 400, 60, 110)});
  EXPECT_EQ(b.lost_steps, 40 + 10);
  EXPECT_EQ(b.steps, 110);
}

TEST(LedgerTest, AProcessWithoutStepsLosesNoSteps) {
  LedgerEntry none = Entry(2, 1, 200, 0, 0);
  none.first_step = none.last_step = kNoStep;
  const Balance b =
      BalanceOf(std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 100), none, Entry(3, 2, 400, 90, 110)});
  EXPECT_EQ(b.lost_steps, 10);
  EXPECT_EQ(b.steps, 110);
  EXPECT_EQ(b.in_rendezvous, seconds(3));
}

TEST(LedgerTest, ANegativeGapCountsAsZeroAndIsReported) {
  const Balance b = BalanceOf(std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 10), Entry(2, 1, 5, 10, 20)});
  EXPECT_EQ(b.in_restart, Duration::zero());
  EXPECT_EQ(b.restarts, 1);
  EXPECT_EQ(b.clock_steps, 1);
  EXPECT_THAT(LedgerTable(b),
              HasSubstr("a wall clock was set back: 1 gap between processes counted as zero\n"));
}

TEST(LedgerTest, TheTableAddsUp) {
  const Balance b = BalanceOf(std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 10), Entry(2, 1, 14, 8, 20),
                                                       Entry(3, 1, 30, 20, 30), Entry(0, 0, 90, 30, 50)});
  EXPECT_EQ(LedgerTable(b),
            "ledger: 63.5 s, of which 78.7 % in steps that count\n"
            "  steps           50.000 s  78.74 %  50 steps\n"
            "  lost steps       2.000 s   3.15 %  2 repeated later\n"
            "  rendezvous       4.000 s   6.30 %  of 4 processes\n"
            "  restart          2.250 s   3.54 %  after 1 failure\n"
            "  waiting          2.250 s   3.54 %  for nodes, 1 time\n"
            "  snapshots        2.000 s   3.15 %\n"
            "  other            1.000 s   1.57 %\n"
            "  not counted: 48.250 s between starts of the job (1 time)\n");
  EXPECT_EQ(LedgerLine(b),
            "event=ledger steps=50 lost_steps=2 processes=4 restarts=1 waits=1 downs=1 clock_steps=0 "
            "total_s=63.500000 steps_s=50.000000 lost_steps_s=2.000000 rendezvous_s=4.000000 "
            "restart_s=2.250000 waiting_s=2.250000 snapshots_s=2.000000 other_s=1.000000 down_s=48.250000 "
            "goodput=0.7874");
  EXPECT_THAT(LedgerTable(BalanceOf(std::vector<LedgerEntry>{Entry(1, 0, 0, 0, 1)})),
              Not(HasSubstr("not counted")));
}

}  // namespace
}  // namespace ddprun
