// End-to-end tests of `train` with real processes, a real store and real signals.
#include <signal.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

using Flags = std::vector<std::string>;

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

int64_t LastStep(const std::string& metrics_path) {
  return train::ReadMetrics(metrics_path).value().back().step;
}

TEST(TrainTest, TheLossFallsOnTheBuiltInText) {
  const std::string directory = MakeTestDirectory();
  const std::string last =
      Train({}, TinyModel() + Flags{"--steps=80", "--metrics=" + directory + "/m.jsonl"});
  EXPECT_THAT(last, MatchesRegex("step=80 loss=[0-9.]+ sha256=[0-9a-f]{64}\n"));
  const std::vector<double> losses = Losses(directory + "/m.jsonl");
  ASSERT_EQ(losses.size(), 80);
  EXPECT_NEAR(losses.front(), 5.545, 0.05);  // log 256, the loss of a uniform guess
  EXPECT_LT(losses.back(), 3.6);
  EXPECT_THAT(ReadFile(directory + "/m.svg").value(), HasSubstr("<polyline"));
}

TEST(TrainTest, PrintsAFlushedLinePerStep) {
  Job job({}, TinyModel() + Flags{"--steps=1000000"});
  EXPECT_TRUE(job.worker(0).AwaitLine("event=train step=0 steps=1000000 world_size=1"));
  const std::optional<std::string> line = job.worker(0).AwaitLine("step=3/");
  ASSERT_TRUE(line);  // The program is still running, so it has flushed the line.
  EXPECT_THAT(*line, MatchesRegex("step=3/1000000 loss=[0-9.]+ tokens/s=[0-9]+ left=[0-9dhms]+"));
}

// Trains with the same global batch on 1, 2 and 4 workers of one node, and on 4 workers of 2 nodes. All 50
// losses and all parameters must be bit-equal.
TEST(TrainTest, ResultsDoNotDependOnTheNumberOfWorkersAndNodes) {
  const std::string directory = MakeTestDirectory();
  std::vector<std::string> last_lines;
  std::vector<std::vector<double>> losses;
  for (const JobOptions& options :
       std::vector<JobOptions>{{}, {.world_size = 2}, {.world_size = 4}, {.world_size = 4, .nodes = 2}}) {
    const std::string metrics = directory + "/" + std::to_string(losses.size());
    // The buckets are small, so that several are in flight at the same time.
    last_lines.push_back(
        Train(options, TinyModel() + Flags{"--steps=50", "--bucket-mb=0.004", "--metrics=" + metrics}));
    losses.push_back(Losses(metrics));
  }
  ASSERT_EQ(losses[0].size(), 50);
  EXPECT_THAT(losses, Each(losses[0]));
  EXPECT_THAT(last_lines, Each(last_lines[0]));
  EXPECT_EQ(Train({.world_size = 2}, TinyModel() + Flags{"--steps=50", "--accumulate=2"}), last_lines[0]);
}

Flags TinyModelWithBatch(int batch) {
  Flags flags = TinyModel();
  std::erase_if(flags, [](const std::string& flag) { return flag.starts_with("--global-batch"); });
  return flags + Flags{"--global-batch=" + std::to_string(batch)};
}

// If each worker has 2^k sequences, the workers' sums are subtrees of the sum of a single worker.
TEST(TrainTest, SharesThatArePowersOfTwoGiveEqualBits) {
  for (const auto& [batch, world_sizes] :
       std::vector<std::pair<int, std::vector<int>>>{{5, {5}}, {12, {3, 6}}, {14, {7}}}) {
    const Flags flags = TinyModelWithBatch(batch) + Flags{"--steps=10"};
    const std::string alone = Train({}, flags);
    for (const int world_size : world_sizes) {
      EXPECT_EQ(Train({.world_size = world_size}, flags), alone) << world_size << " for " << batch;
    }
  }
}

// Two workers have equal shares of 6 sequences, which is not a power of two.
TEST(TrainTest, OtherSharesGiveDifferentBitsWithAWarning) {
  const Flags flags = TinyModelWithBatch(12) + Flags{"--steps=10"};
  Job alone({}, flags), two({.world_size = 2}, flags), three({.world_size = 3}, flags);
  const std::string result = alone.Finish();
  EXPECT_NE(two.Finish(), result);
  EXPECT_EQ(three.Finish(), result);
  constexpr char kWarning[] =
      "train: --global-batch=12 among 2 workers, 6 each: results equal those of other";
  EXPECT_THAT(two.worker(0).err(), HasSubstr(kWarning));
  for (Job* job : {&alone, &three}) EXPECT_THAT(job->worker(0).err(), Not(HasSubstr("--global-batch")));
}

// With 3 workers, results equal those of a single worker; with 2 workers, they do not.
TEST(TrainTest, AResizeThatChangesResultsPrintsAWarning) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModelWithBatch(12) + Flags{"--snapshot-every=5", "--snapshot-dir=" + directory};
  Train({.world_size = 3}, flags + Flags{"--steps=5"});
  Job resized({.world_size = 2, .round = 1}, flags + Flags{"--steps=10"});
  EXPECT_NE(resized.Finish(), "");
  EXPECT_THAT(resized.worker(0).out(), HasSubstr("event=resume step=5 "));
  EXPECT_THAT(resized.worker(0).err(), HasSubstr("train: --global-batch=12 among 2 workers, 6 each: "));
}

// With unequal shares, the rounding of sums differs slightly. It depends on the number of workers, but not on
// the distribution of the workers over nodes.
TEST(TrainTest, UnequalSharesTrainTheSameModelExceptForRounding) {
  const std::string directory = MakeTestDirectory();
  const auto losses = [&](int world_size, int nodes) {
    const std::string metrics = directory + "/" + std::to_string(world_size) + "-" + std::to_string(nodes);
    Train({.world_size = world_size, .nodes = nodes},
          TinyModelWithBatch(11) + Flags{"--steps=10", "--metrics=" + metrics});
    return Losses(metrics);
  };
  const std::vector<double> alone = losses(1, 1);
  ASSERT_EQ(alone.size(), 10);
  for (int world_size = 2; world_size <= 8; ++world_size) {
    SCOPED_TRACE(world_size);
    const std::vector<double> many = losses(world_size, 1);
    ASSERT_EQ(many.size(), 10);
    for (size_t i = 0; i < many.size(); ++i) {
      EXPECT_NEAR(many[i], alone[i], 1e-4 * alone[i]) << "step " << i + 1;
    }
    if (world_size == 6) {
      EXPECT_EQ(losses(6, 2), many);
      EXPECT_EQ(losses(6, 3), many);
    }
  }
}

TEST(TrainTest, AResumedRunEqualsAnUninterruptedRun) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--snapshot-every=4", "--metrics=" + directory + "/m"};
  const std::string uninterrupted =
      Train({}, flags + Flags{"--steps=20", "--snapshot-dir=" + directory + "/a"});
  Train({}, flags + Flags{"--steps=10", "--snapshot-dir=" + directory + "/b"});
  EXPECT_EQ(Train({}, flags + Flags{"--steps=20", "--snapshot-dir=" + directory + "/b"}), uninterrupted);
  // All steps are done, so this run only prints the same last line again.
  EXPECT_EQ(Train({}, flags + Flags{"--steps=20", "--snapshot-dir=" + directory + "/b"}), uninterrupted);
}

// A worker is killed; the other workers report its death and exit. The next round, of the same or another
// size, resumes from the snapshot and ends with the result of an uninterrupted single worker.
TEST(TrainTest, AKilledWorkerDoesNotChangeTheResult) {
  for (const int next_world_size : {4, 2}) {
    const std::string directory = MakeTestDirectory();
    const Flags files = {"--snapshot-dir=" + directory + "/snapshots", "--snapshot-every=5",
                         "--metrics=" + directory + "/m.jsonl"};
    {
      Job job({.world_size = 4}, TinyModel() + files + Flags{"--steps=1000000"});  // never completes
      ASSERT_TRUE(job.worker(0).AwaitLine("step=7/"));
      job.worker(2).Signal(SIGKILL);
      const std::vector<ChildEnd> ends = job.Wait();
      EXPECT_EQ(ends[2], (ChildEnd{.signal = SIGKILL}));
      for (const int rank : {0, 1, 3}) {
        EXPECT_EQ(ends[rank], (ChildEnd{.code = 1})) << "rank " << rank;
        EXPECT_THAT(job.worker(rank).err(), HasSubstr("rank 2 of round 0 is gone (the cause is elsewhere)"))
            << "rank " << rank;
      }
    }
    const int64_t killed_at = LastStep(directory + "/m.jsonl");
    const int64_t kept = killed_at / 5 * 5;
    const Flags to_the_end = {"--steps=" + std::to_string(kept + 12)};
    Job job({.world_size = next_world_size, .round = 1, .restart_count = 1},
            TinyModel() + files + to_the_end);
    EXPECT_TRUE(job.worker(0).AwaitLine("event=resume step=" + std::to_string(kept) + " "));
    EXPECT_EQ(job.Finish(), Train({}, TinyModel() + to_the_end));

    EXPECT_THAT(job.worker(0).out(), HasSubstr("event=ledger steps=" + std::to_string(kept + 12) +
                                               " lost_steps=" + std::to_string(killed_at - kept) +
                                               " processes=2 restarts=1 waits=0 downs=0 clock_steps=0 "));

    const std::vector<train::StepMetrics> metrics = train::ReadMetrics(directory + "/m.jsonl").value();
    EXPECT_EQ(metrics.size(), killed_at + 12) << "lines of repeated steps must be kept";
    EXPECT_EQ(metrics.back().step, kept + 12);
    EXPECT_EQ(metrics.back().restart, 1);
    EXPECT_EQ(metrics.back().world_size, next_world_size);
    EXPECT_THAT(ReadFile(directory + "/m.svg").value(), HasSubstr("restart 1: "));
  }
}

// Starts `train` twice, without a launcher.
TEST(TrainTest, TheLedgerCoversAllStarts) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--snapshot-every=4", "--snapshot-dir=" + directory};
  Train({}, flags + Flags{"--steps=8"});
  ASSERT_TRUE(std::filesystem::remove(directory + "/snapshot-000000000008-r0.ddp"));
  Job job({}, flags + Flags{"--steps=10"});
  job.Finish();
  const std::string& out = job.worker(0).out();
  EXPECT_THAT(out, HasSubstr("event=ledger steps=10 lost_steps=4 processes=2 restarts=0 waits=0 downs=1 "));
  EXPECT_THAT(out, HasSubstr("\n  lost steps "));
  // The ledger has one entry per process, regardless of the number of steps.
  EXPECT_EQ(std::filesystem::file_size(directory + "/ledger"), 16 + 2 * 88);
}

TEST(TrainTest, AnInvalidLedgerIsMovedAwayWithAMessage) {
  const std::string directory = MakeTestDirectory();
  ASSERT_TRUE(WriteFile(directory + "/ledger", "mine").ok());
  Job job({}, TinyModel() + Flags{"--steps=2", "--snapshot-dir=" + directory});
  EXPECT_NE(job.Finish(), "");
  EXPECT_THAT(job.worker(0).err(), HasSubstr("train: " + directory + "/ledger: not a ledger: moved to "));
}

TEST(TrainTest, ATornSnapshotIsSkippedWithAMessage) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--snapshot-every=5", "--snapshot-dir=" + directory};
  const std::string uninterrupted = Train({}, TinyModel() + Flags{"--steps=12"});
  Train({}, flags + Flags{"--steps=10"});
  const std::string newest = directory + "/snapshot-000000000010-r0.ddp";
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  Job job({}, flags + Flags{"--steps=12"});
  EXPECT_TRUE(job.worker(0).AwaitLine("event=resume step=5 "));
  EXPECT_EQ(job.Finish(), uninterrupted);
  EXPECT_THAT(job.worker(0).err(), HasSubstr("skipped a snapshot: " + newest + ": torn: "));
}

// No snapshot is left to resume from, and the user must see why training starts from scratch.
TEST(TrainTest, IfAllSnapshotsAreTornEachIsReportedAndTrainingStartsFromScratch) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--steps=10", "--snapshot-every=10", "--snapshot-dir=" + directory};
  const std::string first = Train({}, flags);
  const std::string only = directory + "/snapshot-000000000010-r0.ddp";
  std::filesystem::resize_file(only, std::filesystem::file_size(only) / 2);
  Job job({}, flags);
  EXPECT_TRUE(job.worker(0).AwaitLine("event=train step=0 "));
  EXPECT_EQ(job.Finish(), first);
  EXPECT_THAT(job.worker(0).err(), HasSubstr("skipped a snapshot: " + only + ": torn: "));
}

TEST(TrainTest, RanksWithDifferentOptionsNameTheOption) {
  Job job({.world_size = 2}, TinyModel() + Flags{"--steps=5"}, {{}, {"--lr=0.5"}});
  EXPECT_THAT(job.Wait(), Each(ChildEnd{.code = 1}));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(job.worker(rank).err(),
                HasSubstr("rank 1 differs from rank 0 in --lr: start all with the same"));
    EXPECT_THAT(job.worker(rank).out(), Not(HasSubstr("step=1/")));
  }
}

TEST(TrainTest, RanksWithDifferentKindsOfCpuNameTheRemedy) {
  Job job({.world_size = 2}, TinyModel() + Flags{"--steps=5"}, {{}, {"--cpu=baseline"}});
  const std::vector<ChildEnd> ends = job.Wait();
  if (ends[0] == ChildEnd{.code = 0}) GTEST_SKIP() << "this CPU supports only the baseline";
  EXPECT_THAT(ends, Each(ChildEnd{.code = 1}));
  EXPECT_THAT(job.worker(0).err(),
              HasSubstr("rank 1 differs from rank 0 in the kind of CPU (--cpu=baseline suits all)"));
  EXPECT_NE(Train({.world_size = 2}, TinyModel() + Flags{"--steps=5", "--cpu=baseline"}), "");
}

TEST(TrainTest, EveryRankLoadsTheSnapshotThatRankZeroNames) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--steps=4"};
  Train({}, flags + Flags{"--snapshot-dir=" + directory + "/a"});
  Job job({.world_size = 2}, flags,
          {{"--snapshot-dir=" + directory + "/a"}, {"--snapshot-dir=" + directory + "/b"}});
  EXPECT_EQ(job.Wait()[1], (ChildEnd{.code = 1}));
  EXPECT_THAT(job.worker(1).err(), HasSubstr("--snapshot-dir must be one directory that all nodes see"));
  EXPECT_THAT(job.worker(1).err(), HasSubstr(directory + "/b/snapshot-000000000004-r0.ddp: No such file"));
}

}  // namespace
}  // namespace ddprun
