#include "tests/sim/world/sim_disk.h"

#include <optional>

#include "gtest/gtest.h"

namespace ddprun::sim {
namespace {

using Outcome = SimDisk::Outcome;

class SimDiskTest : public testing::Test {
 protected:
  // Starts a write, which sets outcome_ when it finishes.
  void Write(SimDisk::WriterId writer, int round, int64_t step) {
    outcome_.reset();
    disk_.Write(writer, Round(round), step, [this](Outcome outcome) { outcome_ = outcome; });
  }
  void Run(Duration d = seconds(1)) { clock_.RunUntil(clock_.now() + d); }
  SimDisk::WriterId Taken() {
    const SimDisk::WriterId writer = disk_.NewWriter();
    EXPECT_TRUE(disk_.Take(writer, disk_.Holder()));
    return writer;
  }

  SimClock clock_;
  Trace trace_{false};
  SimDisk disk_{&clock_, &trace_, Random(5)};
  std::optional<Outcome> outcome_;
};

TEST_F(SimDiskTest, FindsAWholeSnapshot) {
  const auto writer = Taken();
  EXPECT_EQ(disk_.NewestStep(), 0);
  Write(writer, 0, 7);
  EXPECT_EQ(disk_.NewestStep(), 0);  // The write has not finished.
  Run();
  EXPECT_EQ(outcome_, Outcome::kPublished);
  EXPECT_EQ(disk_.NewestStep(), 7);
}

TEST_F(SimDiskTest, AKilledWriterLeavesATornFileThatIsSkipped) {
  const auto writer = Taken();
  Write(writer, 0, 7);
  Run();
  Write(writer, 0, 9);
  disk_.Kill(writer);
  Run();
  EXPECT_EQ(outcome_, std::nullopt);
  EXPECT_EQ(disk_.NewestStep(), 7);
  EXPECT_EQ(disk_.num_torn(), 1);
  ASSERT_EQ(disk_.snapshots().size(), 2u);
  EXPECT_FALSE(disk_.snapshots()[1].whole);
}

TEST_F(SimDiskTest, AFullDiskKeepsExistingSnapshots) {
  const auto writer = Taken();
  Write(writer, 0, 7);
  Run();
  disk_.SetFull(true);
  Write(writer, 0, 9);
  Run();
  EXPECT_EQ(outcome_, Outcome::kFull);
  EXPECT_EQ(disk_.NewestStep(), 7);
  disk_.SetFull(false);
  Write(writer, 0, 9);
  Run();
  EXPECT_EQ(disk_.NewestStep(), 9);
}

TEST_F(SimDiskTest, ASlowDiskDelaysTheOutcome) {
  const auto writer = Taken();
  disk_.SetDelay(seconds(5));
  Write(writer, 0, 7);
  Run(seconds(5));
  EXPECT_EQ(outcome_, std::nullopt);
  Run();
  EXPECT_EQ(outcome_, Outcome::kPublished);
}

TEST_F(SimDiskTest, AWriterThatResumesAfterATakeoverPublishesNothing) {
  const auto old = Taken();
  Write(old, 0, 7);
  disk_.Suspend(old);
  Run();
  const auto next = Taken();
  Write(next, 1, 3);
  Run();
  EXPECT_EQ(outcome_, Outcome::kPublished);
  outcome_.reset();
  disk_.Resume(old);
  EXPECT_EQ(outcome_, Outcome::kTakenOver);
  EXPECT_EQ(disk_.NewestStep(), 3);
  EXPECT_EQ(trace_.broken(), "");
}

TEST_F(SimDiskTest, TakeFailsIfTheHolderHasChanged) {
  const auto a = disk_.NewWriter();
  const auto seen = disk_.Holder();
  Taken();
  EXPECT_FALSE(disk_.Take(a, seen));
  EXPECT_EQ(disk_.num_taken_over(), 1);
}

TEST_F(SimDiskTest, ASnapshotThatDoesNotAdvanceTheStepBreaksARule) {
  Write(Taken(), 0, 7);
  Run();
  Write(Taken(), 1, 7);  // A writer that continued from the newest snapshot would be beyond step 7.
  Run();
  EXPECT_EQ(trace_.broken(), "a snapshot of step 7 follows one of step 7");
}

}  // namespace
}  // namespace ddprun::sim
