// Tests that `train` writes snapshots at the agent's request, tolerates a full disk and a slow disk, and
// writes no snapshot after its round is over.
#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "tests/train/small_disk.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/snapshot_store.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

using Flags = std::vector<std::string>;

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

constexpr int64_t kNever = 1'000'000'000;

Flags Endless() { return TinyModel(/*log_every=*/kNever) + Flags{"--steps=" + std::to_string(kNever)}; }

class TrainSnapshotsTest : public testing::Test {
 protected:
  void SetUp() override { agent_.Listen(); }

  // Waits until the worker reports a snapshot of step `at_least` or later. Returns the step; -1 on timeout.
  int64_t AwaitSnapshot(int64_t at_least) {
    const auto report =
        agent_.Await([=](const WorkerReport& r) { return r.snapshot_step && *r.snapshot_step >= at_least; });
    return report ? *report->snapshot_step : -1;
  }
  bool AwaitStep(int64_t at_least) {
    return agent_.Await([=](const WorkerReport& r) { return r.step >= at_least; }).has_value();
  }
  void RequestSnapshot(int64_t round) { agent_.Ask({.round = Round(round), .take_snapshot = true}); }
  static int64_t NewestStep(const std::string& directory) {
    const FoundSnapshot found = SnapshotStore(directory).FindNewest().value();
    EXPECT_THAT(found.skipped, testing::IsEmpty());
    return found.newest ? found.newest->snapshot.step : -1;
  }

  FakeAgent agent_;
};

// No scheduled snapshot is due, so every snapshot is the result of a request.
TEST_F(TrainSnapshotsTest, TheAgentGetsASnapshotOnRequest) {
  const std::string directory = MakeTestDirectory();
  Job job({.round = 4, .agent_socket = agent_.name()},
          Endless() + Flags{"--snapshot-every=" + std::to_string(kNever), "--snapshot-dir=" + directory});
  int64_t last = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(AwaitStep(last + 3));
    RequestSnapshot(4);
    const int64_t step = AwaitSnapshot(last + 1);
    EXPECT_GE(step, last + 3);
    EXPECT_TRUE(SnapshotStore(directory).Load(SnapshotStore::NameOf(step, Round(4))).ok()) << step;
    last = step;
  }
  ASSERT_TRUE(AwaitStep(last + 3)) << "training must continue";
  EXPECT_EQ(NewestStep(directory), last) << "expected one snapshot per request";
}

class TrainFullDiskTest : public TrainSnapshotsTest {
 protected:
  void SetUp() override {
    if (const std::string why = SmallDisk::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    TrainSnapshotsTest::SetUp();
    disk_ = std::make_unique<SmallDisk>(2 << 20);
    // Trains for ten steps with free space, and then fills the disk.
    Train({}, TinyModel() + OnDisk() + Flags{"--steps=10"});
    disk_->Fill();
  }
  Flags OnDisk() const {
    return {"--snapshot-every=5", "--snapshot-dir=" + directory(), "--metrics=" + disk_->path() + "/m.jsonl"};
  }
  std::string directory() const { return disk_->path() + "/s"; }
  std::vector<std::string> Files() const { return ListDirectory(directory()).value(); }

  std::unique_ptr<SmallDisk> disk_;
};

TEST_F(TrainFullDiskTest, TrainingContinuesWithoutSnapshotsAndMetricsUntilThereIsSpace) {
  Job job({.round = 1, .agent_socket = agent_.name()}, Endless() + OnDisk());
  Child& worker = job.worker(0);
  ASSERT_TRUE(AwaitStep(1));
  RequestSnapshot(1);  // fails because the disk is full
  for (const char* text : {"train: --snapshot-dir: cannot write ", "train: --snapshot-dir: cannot write ",
                           "train: no snapshot of step "}) {
    const std::optional<std::string> line = worker.AwaitErrLine(text);
    ASSERT_TRUE(line) << text << worker.err();
    EXPECT_THAT(*line, MatchesRegex(".*: No space left on device; training continues.*; free space there"));
    EXPECT_THAT(*line, HasSubstr(directory() + "/."));
  }
  EXPECT_THAT(worker.out(), HasSubstr("event=resume step=10 "));
  EXPECT_EQ(NewestStep(directory()), 10);
  ASSERT_TRUE(worker.AwaitErrLine("train: no metrics from step "));

  disk_->Free();
  const int64_t step = AwaitSnapshot(15);
  EXPECT_EQ(step % 5, 0) << "a failed request must be retried at the next interval, not at every step";
  ASSERT_TRUE(worker.AwaitErrLine("train: metrics again from step "));
  worker.Signal(SIGSTOP);
  EXPECT_GE(NewestStep(directory()), step);
  for (const std::string& name : Files()) {
    EXPECT_THAT(name, MatchesRegex("claim|ledger|snapshot-.*|\\.snapshot-.*-r1\\.ddp.*"))
        << "unexpected file";
  }
}

TEST_F(TrainFullDiskTest, FailsAfterTheLastStepAndTheNextStartResumes) {
  const Flags to_the_end = {"--steps=18"};
  Job job({}, TinyModel() + OnDisk() + to_the_end);
  EXPECT_EQ(job.Wait()[0], (ChildEnd{.code = 1}));
  const std::string& err = job.worker(0).err();
  EXPECT_THAT(err, HasSubstr("train: no snapshot of step 15: cannot write " + directory() + "/."));
  EXPECT_THAT(err, HasSubstr("train: the last snapshot: cannot write " + directory() + "/."));
  EXPECT_THAT(
      err,
      HasSubstr(
          "No space left on device; free space there; the next start resumes from the previous snapshot\n"));
  EXPECT_EQ(NewestStep(directory()), 10);
  for (const std::string& name : Files()) {
    EXPECT_FALSE(name.ends_with(".tmp")) << name;
  }
  disk_->Free();
  EXPECT_EQ(Train({}, TinyModel() + OnDisk() + to_the_end), Train({}, TinyModel() + to_the_end));
}

// A snapshot takes more than 5 s, and --stall-timeout is 1 s.
TEST_F(TrainSnapshotsTest, ASnapshotMayTakeLongerThanTheStallTimeout) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--steps=2", "--stall-timeout=1"};
  Job job({.world_size = 2, .more = {{"LD_PRELOAD", ProgramPath("tests/train/libslow_disk.so")}}},
          flags + Flags{"--snapshot-every=1", "--snapshot-dir=" + directory});
  ASSERT_TRUE(job.worker(0).AwaitLine("step=1/2 "));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(job.worker(0).AwaitLine("step=2/2 "));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, seconds(3)) << "the disk was not slow";
  EXPECT_EQ(job.Finish(), Train({}, flags));
  EXPECT_EQ(NewestStep(directory), 2);
}

// A worker is stopped, as on a suspended host, and continues after the next round has trained.
TEST_F(TrainSnapshotsTest, AWorkerThatContinuesAfterItsRoundWritesNoSnapshot) {
  const std::string directory = MakeTestDirectory();
  const Flags files = {"--snapshot-every=5", "--snapshot-dir=" + directory};
  Job old({.round = 3, .agent_socket = agent_.name()}, Endless() + files);
  ASSERT_GE(AwaitSnapshot(5), 5);
  old.worker(0).Signal(SIGSTOP);

  const Flags to_the_end = {"--steps=" + std::to_string(NewestStep(directory) + 50)};
  const std::string result = Train({.round = 4}, TinyModel() + files + to_the_end);
  EXPECT_EQ(result, Train({}, TinyModel() + to_the_end));
  const std::string newest = SnapshotStore(directory).FindNewest()->newest->name;

  old.worker(0).Signal(SIGCONT);
  EXPECT_EQ(old.Wait()[0], (ChildEnd{.code = 1}));
  EXPECT_THAT(old.worker(0).err(), HasSubstr("train: round 4 has taken over " + directory + " (process "));
  EXPECT_THAT(old.worker(0).err(), HasSubstr("): this worker belongs to round 3 (the cause is elsewhere)\n"));
  EXPECT_EQ(SnapshotStore(directory).FindNewest()->newest->name, newest);
  EXPECT_EQ(Train({}, TinyModel() + files + to_the_end), result);
}

}  // namespace
}  // namespace ddprun
