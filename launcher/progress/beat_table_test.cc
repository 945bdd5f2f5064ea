#include "launcher/progress/beat_table.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

using Level = StandstillLevel;

const LocalRank kZero(0), kOne(1);

class BeatTableTest : public testing::Test {
 protected:
  void Use(HangTimeout timeout, int workers = 2) {
    table_.emplace(timeout, /*outside=*/true);
    table_->Begin(workers, 8, now_);
  }
  // Time passes, with a look every second.
  NodeStandstill Pass(Duration time) {
    NodeStandstill last = table_->Look(now_);
    for (Duration left = time; left > Duration::zero(); left -= seconds(1)) {
      now_ += std::min<Duration>(left, seconds(1));
      last = table_->Look(now_);
    }
    return last;
  }
  void Report(LocalRank worker, WorkerPhase phase = WorkerPhase::kTraining) {
    table_->Reported(worker, ++step_, phase, now_);
  }
  // Both workers report in each interval.
  void Steps(int n, Duration interval, WorkerPhase phase = WorkerPhase::kTraining) {
    for (int i = 0; i < n; ++i) {
      Pass(interval);
      Report(kZero, phase);
      Report(kOne, phase);
    }
  }
  Level LevelAfter(Duration time) { return Pass(time).level; }

  TimePoint now_ = TimePoint(seconds(1000));
  int64_t step_ = 0;
  std::optional<BeatTable> table_;
};

TEST_F(BeatTableTest, WorkersThatReportNothingAreNotJudgedByAuto) {
  Use(HangTimeout::Auto());
  EXPECT_FALSE(table_->needs_signs());
  EXPECT_EQ(Pass(seconds(3600)), NodeStandstill());
}

TEST_F(BeatTableTest, OffJudgesNoWorker) {
  Use(HangTimeout::Off());
  Steps(20, seconds(1));
  EXPECT_FALSE(table_->needs_signs());
  EXPECT_EQ(LevelAfter(seconds(3600)), Level::kMoving);
}

TEST_F(BeatTableTest, TheLimitIsThreeTimesTheLongestInterval) {
  Use(HangTimeout::Auto());
  Steps(12, seconds(4));
  Steps(1, seconds(6));
  Steps(5, seconds(4));
  EXPECT_EQ(table_->LimitOf(kZero), seconds(18));
  EXPECT_EQ(LevelAfter(seconds(8)), Level::kMoving);
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kSuspect);
  EXPECT_EQ(LevelAfter(seconds(7)), Level::kSuspect);
  const NodeStandstill still = Pass(seconds(1));  // a second early, because a look may be late
  EXPECT_EQ(still, (NodeStandstill{.level = Level::kStill, .reports = true, .idle = seconds(17)}));
  EXPECT_EQ(LevelAfter(seconds(36)), Level::kStill);
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kHung);
}

TEST_F(BeatTableTest, TheLimitIsAtLeastTenSeconds) {
  Use(HangTimeout::Auto());
  Steps(30, milliseconds(50));
  EXPECT_EQ(table_->LimitOf(kZero), seconds(10));
}

TEST_F(BeatTableTest, AnUnknownPhaseMayLastTenMinutes) {
  Use(HangTimeout::Auto());
  Report(kZero, WorkerPhase::kStarting);
  Report(kOne, WorkerPhase::kStarting);
  EXPECT_EQ(LevelAfter(seconds(598)), Level::kSuspect);
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kStill);
  EXPECT_EQ(LevelAfter(seconds(36000)), Level::kStill);  // never hung
}

TEST_F(BeatTableTest, TheFirstTwoIntervalsOfAPhaseDoNotCount) {
  Use(HangTimeout::Auto());
  Steps(1, seconds(1));    // the worker starts
  Steps(2, seconds(180));  // it compiles
  Steps(10, seconds(1));
  EXPECT_EQ(table_->LimitOf(kZero), seconds(10));
  // Nor is a worker judged by what was learnt before it has done two intervals in a later round.
  table_->Over(now_);
  table_->Begin(2, 8, now_);
  Steps(2, seconds(1));
  EXPECT_EQ(table_->LimitOf(kZero), BeatTable::kUnlearnt);
  Steps(1, seconds(180));
  EXPECT_EQ(table_->LimitOf(kZero), seconds(10));
}

TEST_F(BeatTableTest, EachPhaseHasItsOwnLimit) {
  Use(HangTimeout::Auto());
  for (int i = 0; i < 15; ++i) {
    Steps(2, seconds(1));
    Report(kZero, WorkerPhase::kSnapshotting);
    Report(kOne, WorkerPhase::kSnapshotting);
    Pass(seconds(20));
  }
  Report(kZero);
  Report(kOne);
  EXPECT_EQ(table_->LimitOf(kZero), seconds(10));
  Report(kZero, WorkerPhase::kSnapshotting);
  EXPECT_EQ(table_->LimitOf(kZero), seconds(63));
  EXPECT_EQ(LevelAfter(seconds(29)), Level::kMoving);  // the other one waits for the snapshot
}

TEST_F(BeatTableTest, OneWorkerThatMovesIsEnough) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  for (int i = 0; i < 60; ++i) {
    Report(kZero);
    EXPECT_EQ(LevelAfter(seconds(1)), Level::kMoving);
  }
  table_->Ended(kZero);
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kHung);
}

TEST_F(BeatTableTest, AnotherTextIsNoBeat) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  const int64_t step = step_;
  for (int i = 0; i < 12; ++i) {
    table_->Reported(kZero, step - 1, WorkerPhase::kTraining, now_);
    table_->Reported(kOne, step, WorkerPhase::kTraining, now_);
    Pass(seconds(1));
  }
  EXPECT_EQ(LevelAfter(seconds(0)), Level::kStill);
}

TEST_F(BeatTableTest, AWorkerWithoutReportsDoesNotCountBesideOneThatReports) {
  Use(HangTimeout::Of(seconds(20)));
  for (int i = 0; i < 5; ++i) {
    Report(kZero);
    table_->Seen(kOne, now_);
    Pass(seconds(1));
  }
  for (int i = 0; i < 25; ++i) {
    table_->Seen(kOne, now_);  // it prints
    Pass(seconds(1));
  }
  EXPECT_EQ(LevelAfter(seconds(0)), Level::kHung);
}

TEST_F(BeatTableTest, AGivenTimeAlsoJudgesWorkersThatReportNothing) {
  Use(HangTimeout::Of(seconds(20)));
  EXPECT_TRUE(table_->needs_signs());
  EXPECT_EQ(LevelAfter(seconds(9)), Level::kMoving);
  const NodeStandstill suspect = Pass(seconds(1));
  EXPECT_EQ(suspect, (NodeStandstill{.level = Level::kSuspect, .idle = seconds(10)}));
  table_->Seen(kOne, now_);
  EXPECT_EQ(LevelAfter(seconds(9)), Level::kMoving);
  EXPECT_EQ(LevelAfter(seconds(11)), Level::kHung);
  Report(kZero);
  EXPECT_FALSE(table_->needs_signs());
}

// The agent cannot pass on the output of the workers, so they wait for the reader.
TEST_F(BeatTableTest, TimeInWhichWorkersCannotGoOnDoesNotCount) {
  Use(HangTimeout::Of(seconds(20)));
  EXPECT_EQ(LevelAfter(seconds(9)), Level::kMoving);
  for (int i = 0; i < 100; ++i) {
    now_ += seconds(1);
    table_->Skip(now_);
    EXPECT_EQ(table_->Look(now_).level, Level::kMoving);
  }
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kSuspect);
}

TEST_F(BeatTableTest, AHeartbeatFileCountsAsReports) {
  Use(HangTimeout::Auto());
  for (int i = 0; i < 20; ++i) {
    table_->Touched(kZero, now_);
    Pass(seconds(1));
  }
  EXPECT_EQ(table_->LimitOf(kZero), seconds(10));
  EXPECT_EQ(table_->LimitOf(kOne), std::nullopt);
  EXPECT_EQ(LevelAfter(seconds(9)), Level::kStill);
}

// The agent, its host or the virtual machine was suspended for an hour: one look, which counts for 2 s.
TEST_F(BeatTableTest, ATimeWithoutLooksCountsForTwoSeconds) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  Pass(seconds(3));
  now_ += seconds(3600);
  EXPECT_EQ(table_->Look(now_).level, Level::kSuspect);
  EXPECT_EQ(table_->idle(kZero), seconds(5));
  // It does not make the next intervals longer, either.
  Report(kZero);
  EXPECT_EQ(table_->LimitOf(kZero), seconds(15));
}

TEST_F(BeatTableTest, WorkersThatHaveAllEnded) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  table_->Ended(kZero);
  table_->Ended(kOne);
  const NodeStandstill ended = Pass(seconds(60));
  EXPECT_TRUE(ended.ended);
  EXPECT_EQ(ended.level, Level::kMoving);
  Report(kZero);  // arrives late
  EXPECT_EQ(Pass(seconds(1)), ended);
}

TEST_F(BeatTableTest, TheEndOfAProgramIsNeverHung) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1), WorkerPhase::kFinishing);
  EXPECT_EQ(LevelAfter(seconds(3600)), Level::kStill);
}

TEST_F(BeatTableTest, AnotherWorldSizeIsLearntAnew) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  table_->Over(now_);
  table_->Begin(2, 2, now_);
  Steps(5, seconds(8));
  EXPECT_EQ(table_->LimitOf(kZero), BeatTable::kUnlearnt);
  Steps(10, seconds(8));
  EXPECT_EQ(table_->LimitOf(kZero), seconds(24));
}

TEST_F(BeatTableTest, WhenTheWorkerThatReportsHasEndedTheOthersCount) {
  Use(HangTimeout::Of(seconds(20)));
  for (int i = 0; i < 30; ++i) {
    Report(kZero);
    Pass(seconds(1));
  }
  table_->Ended(kZero);
  const NodeStandstill moving = Pass(seconds(9));
  EXPECT_EQ(moving, NodeStandstill());
  EXPECT_EQ(LevelAfter(seconds(11)), Level::kHung);
}

// An evaluation that the program does not declare has ended a round. It may take as long in the next one.
TEST_F(BeatTableTest, APauseThatHasEndedARoundMayBeLongerInTheNext) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  EXPECT_EQ(LevelAfter(seconds(30)), Level::kHung);
  table_->Over(now_);
  table_->Begin(2, 8, now_);
  Steps(12, seconds(1));
  EXPECT_EQ(LevelAfter(seconds(10)), Level::kStill);  // the users are told as early as before
  EXPECT_EQ(LevelAfter(seconds(79)), Level::kStill);
  EXPECT_EQ(LevelAfter(seconds(1)), Level::kHung);
}

TEST_F(BeatTableTest, ARoundThatEndsOtherwiseChangesNothing) {
  Use(HangTimeout::Auto());
  Steps(20, seconds(1));
  Pass(seconds(25));
  table_->Over(now_);
  table_->Begin(2, 8, now_);
  Steps(12, seconds(1));
  EXPECT_EQ(LevelAfter(seconds(30)), Level::kHung);
}

}  // namespace
}  // namespace ddprun
