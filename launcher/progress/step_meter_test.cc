#include "launcher/progress/step_meter.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr LocalRank kZero(0), kOne(1);

class StepMeterTest : public testing::Test {
 protected:
  StepMeterTest() { meter_.Begin(2); }
  void Report(LocalRank worker, int64_t step, WorkerPhase phase = WorkerPhase::kTraining) {
    meter_.Reported(worker, step, phase, waited_, now_);
  }
  void After(Duration time, int64_t step, WorkerPhase phase = WorkerPhase::kTraining) {
    now_ += time;
    Report(kZero, step, phase);
  }
  // n steps of 1 s from `step` on, in 0.3 s of which the worker waits.
  void Steps(int n, int64_t step) {
    for (int i = 0; i < n; ++i) {
      if (waited_) *waited_ += milliseconds(300);
      After(seconds(1), step + i);
    }
  }
  std::vector<WorkerSteps> Take(int most = 100) { return meter_.Take(now_, most); }
  std::optional<StepTimes> TakeOne() {
    const std::vector<WorkerSteps> all = Take();
    if (all.size() != 1 || all[0].local_rank != kZero) return std::nullopt;
    return all[0].times;
  }

  TimePoint now_ = TimePoint(seconds(1000));
  std::optional<Duration> waited_ = seconds(77);
  StepMeter meter_;
};

TEST_F(StepMeterTest, MeasuresStepsAndWhatTheWorkerWaitsFor) {
  After(seconds(0), 0);
  After(seconds(50), 1);  // the first step
  EXPECT_FALSE(meter_.has_steps());
  Steps(9, 2);
  EXPECT_TRUE(meter_.has_steps());
  EXPECT_EQ(TakeOne(), std::nullopt) << "9 s";
  Steps(1, 11);
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(1), .communication = milliseconds(300)}));
  EXPECT_EQ(TakeOne(), std::nullopt) << "taken";
}

TEST_F(StepMeterTest, TheSpreadIsTheStandardDeviation) {
  After(seconds(0), 1);
  After(seconds(0), 2);
  for (int i = 0; i < 4; ++i) After(seconds(i % 2 == 0 ? 2 : 4), 3 + i);
  const std::optional<StepTimes> times = TakeOne();
  ASSERT_TRUE(times);
  EXPECT_EQ(times->step, seconds(3));
  EXPECT_NEAR(static_cast<double>(times->spread.count()), 1e9, 1e3);
}

TEST_F(StepMeterTest, TheSpreadOfTheOwnTimeIsWithoutWaits) {
  After(seconds(0), 1);
  After(seconds(0), 2);
  for (int i = 0; i < 4; ++i) {
    *waited_ += seconds(i % 2 == 0 ? 1 : 3);
    After(seconds(i % 2 == 0 ? 2 : 4), 3 + i);
  }
  const std::optional<StepTimes> times = TakeOne();
  ASSERT_TRUE(times);
  EXPECT_EQ(times->communication, seconds(2));
  EXPECT_NEAR(static_cast<double>(times->spread.count()), 1e9, 1e3);
  EXPECT_NEAR(static_cast<double>(times->own_spread.count()), 0, 1e5);
}

TEST_F(StepMeterTest, ALongWindowHasAtLeastThreeSteps) {
  After(seconds(0), 1);
  After(seconds(0), 2);
  After(seconds(60), 3);
  After(seconds(60), 4);
  EXPECT_EQ(TakeOne(), std::nullopt);
  After(seconds(60), 5);
  EXPECT_EQ(TakeOne()->step, seconds(60));
}

TEST_F(StepMeterTest, TimeInThePhaseLoadingIsData) {
  After(seconds(0), 1);
  After(seconds(0), 2);
  for (int i = 0; i < 4; ++i) {
    After(seconds(0), 2 + i, WorkerPhase::kLoading);
    After(seconds(1), 2 + i);
    *waited_ += seconds(1);
    After(seconds(2), 3 + i);
  }
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(3), .data = seconds(1), .communication = seconds(1)}));
  // A report may end a step and begin to load at once.
  for (int i = 0; i < 4; ++i) After(seconds(3), 7 + i, WorkerPhase::kLoading);
  const std::optional<StepTimes> times = TakeOne();
  ASSERT_TRUE(times);
  EXPECT_EQ(times->data, milliseconds(2250));
}

TEST_F(StepMeterTest, AStepWithAnotherPhaseDoesNotCount) {
  After(seconds(0), 1);
  Steps(6, 2);
  After(seconds(0), 7, WorkerPhase::kSnapshotting);
  After(seconds(100), 7);
  After(seconds(1), 8);
  Steps(6, 9);
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(1), .communication = milliseconds(300)}));
}

TEST_F(StepMeterTest, AnEarlierStepAndAVeryLongOneDoNotCount) {
  After(seconds(0), 1);
  Steps(5, 2);
  After(seconds(100), 3);
  After(seconds(100), 4);
  Steps(5, 5);
  After(StepMeter::kLongest + seconds(1), 10);
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(1), .communication = milliseconds(300)}));
}

TEST_F(StepMeterTest, LostReportsDoNotLengthenSteps) {
  After(seconds(0), 1);
  After(seconds(0), 2);
  After(seconds(10), 12);
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(1), .communication = Duration::zero()}));
}

TEST_F(StepMeterTest, UnknownWaitsAreUnknown) {
  waited_.reset();
  After(seconds(0), 1);
  After(seconds(0), 2);
  Steps(10, 3);
  EXPECT_EQ(TakeOne(), (StepTimes{.step = seconds(1)}));
}

// The memory of a worker may hold anything.
TEST_F(StepMeterTest, ImpossibleWaitsAndStepsDoNoHarm) {
  After(seconds(0), INT64_MIN);
  After(seconds(1), INT64_MIN + 1);
  waited_ = Duration(int64_t{1} << 60);
  After(seconds(1), 0);
  waited_ = Duration::zero();
  After(seconds(1), INT64_MAX - 20);
  waited_ = Duration(int64_t{1} << 60);
  for (int i = 0; i < 10; ++i) After(seconds(1), INT64_MAX - 19 + i);
  const std::optional<StepTimes> times = TakeOne();
  ASSERT_TRUE(times);
  EXPECT_GE(*times->communication, Duration::zero());
  EXPECT_LE(*times->communication, times->step);
}

TEST_F(StepMeterTest, WhatIsNotTakenIsTakenLater) {
  for (int step = 1; step < 20; ++step) {
    now_ += seconds(1);
    Report(kZero, step);
    Report(kOne, step);
  }
  ASSERT_EQ(Take(1).size(), 1);
  const std::vector<WorkerSteps> second = Take(1);
  ASSERT_EQ(second.size(), 1);
  EXPECT_EQ(second[0].local_rank, kOne);
  EXPECT_TRUE(Take(1).empty());
}

TEST_F(StepMeterTest, BeginForgets) {
  After(seconds(0), 1);
  Steps(11, 2);
  meter_.Begin(2);
  EXPECT_TRUE(Take().empty());
  EXPECT_FALSE(meter_.has_steps());
}

}  // namespace
}  // namespace ddprun
