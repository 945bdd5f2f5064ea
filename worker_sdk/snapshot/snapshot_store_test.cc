#include "worker_sdk/snapshot/snapshot_store.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/testing/directory_errors.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

// While an object of this class exists, this process cannot write files larger than `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SmallFiles() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_;
  void (*const old_handler_)(int);
};

class SnapshotStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/snapshotsXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }

  // Returns a store that has taken over the directory for `round` and may write.
  SnapshotStore Writer(int keep = 3, Round round = Round(7)) const {
    SnapshotStore store(directory_, keep);
    EXPECT_TRUE(store.Prepare().ok());
    EXPECT_TRUE(store.TakeOver("j", round).ok());
    return store;
  }
  // Writes a snapshot of `num_elems` elements, each of which has the value `step`.
  static Status Write(SnapshotStore& store, int64_t step, size_t num_elems = 4, Round round = Round(7)) {
    const std::vector<float> elems(num_elems, static_cast<float>(step));
    return store.Write({.step = step,
                        .round = round,
                        .tensors = {ViewOf("weight", {static_cast<int64_t>(num_elems)}, elems)}});
  }
  static int64_t NewestStep(const FoundSnapshot& found) {
    return found.newest ? found.newest->snapshot.step : -1;
  }
  std::vector<std::string> Files() const { return ListDirectory(directory_).value(); }
  static std::string NameOf(int64_t step, int64_t round = 7) {
    return SnapshotStore::NameOf(step, Round(round));
  }
  std::string PathOf(int64_t step) const { return StrCat(directory_, "/", NameOf(step)); }
  void Cut(int64_t step, int64_t bytes) const {
    std::filesystem::resize_file(PathOf(step), std::filesystem::file_size(PathOf(step)) - bytes);
  }

  std::string directory_;
};

TEST_F(SnapshotStoreTest, FindsNothingInEmptyAndMissingDirectories) {
  EXPECT_EQ(NewestStep(SnapshotStore(directory_).FindNewest().value()), -1);
  EXPECT_EQ(NewestStep(SnapshotStore(directory_ + "/missing").FindNewest().value()), -1);
}

TEST_F(SnapshotStoreTest, FindsTheHighestStep) {
  SnapshotStore store = Writer();
  for (const int64_t step : {9, 100, 20}) ASSERT_TRUE(Write(store, step).ok());
  const FoundSnapshot found = store.FindNewest().value();
  EXPECT_EQ(NewestStep(found), 100);
  EXPECT_THAT(found.skipped, IsEmpty());
  EXPECT_EQ(found.newest->name, "snapshot-000000000100-r7.ddp");
  EXPECT_EQ(found.newest->sha256, store.Load(found.newest->name)->sha256);
}

TEST_F(SnapshotStoreTest, SkipsTornAndDamagedSnapshotsWithAReason) {
  SnapshotStore store = Writer(10);
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Write(store, step).ok());
  Cut(40, 1);
  std::fstream(PathOf(30), std::ios::in | std::ios::out | std::ios::binary).seekp(-3, std::ios::end).put('x');
  std::filesystem::copy_file(PathOf(10), PathOf(50));  // intact, but its step is not the one in its name
  const FoundSnapshot found = store.FindNewest().value();
  EXPECT_EQ(NewestStep(found), 20);
  ASSERT_EQ(found.skipped.size(), 3);
  EXPECT_EQ(found.skipped[0].reason, DataLossError(PathOf(50) + ": holds step 10 of round 7"));
  EXPECT_EQ(found.skipped[1].path, PathOf(40));
  EXPECT_THAT(std::string(found.skipped[1].reason.message()), HasSubstr(PathOf(40) + ": torn: "));
  EXPECT_THAT(std::string(found.skipped[2].reason.message()), HasSubstr(PathOf(30) + ": damaged: "));
}

TEST_F(SnapshotStoreTest, KeepsTheNewestAndRemovesTheRest) {
  SnapshotStore store = Writer(2);
  std::ofstream(directory_ + "/notes.txt") << "not ours";
  for (const int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_THAT(Files(), ElementsAre("claim", "notes.txt", NameOf(3), NameOf(4)));
}

// Training resumed from step 20 because the snapshots of steps 30 and 40 were torn. `keep` does not count
// snapshots of later steps.
TEST_F(SnapshotStoreTest, TornSnapshotsOfLaterStepsDoNotDisplaceAnIntactOne) {
  SnapshotStore store = Writer(1);
  ASSERT_TRUE(Write(store, 20).ok());
  for (const int64_t step : {30, 40}) std::ofstream(PathOf(step)) << "torn";
  ASSERT_TRUE(Write(store, 25).ok());
  EXPECT_EQ(NewestStep(store.FindNewest().value()), 25);
}

TEST_F(SnapshotStoreTest, WritingAStepAgainReplacesItsSnapshot) {
  SnapshotStore store = Writer();
  ASSERT_TRUE(Write(store, 5, 100).ok());
  Cut(5, 10);
  ASSERT_TRUE(Write(store, 5, 200).ok());
  EXPECT_EQ(store.FindNewest()->newest->snapshot.tensors[0].shape[0], 200);
}

// A round that resumed from step 4 repeats step 5. Then the job is started again, with round 0.
TEST_F(SnapshotStoreTest, ReplacesTheSnapshotOfTheSameStepByAnotherRound) {
  SnapshotStore seventh = Writer(1);
  ASSERT_TRUE(Write(seventh, 5).ok());
  SnapshotStore eighth = Writer(1, Round(8));
  ASSERT_TRUE(Write(eighth, 5, 4, Round(8)).ok());
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(5, 8)));
  SnapshotStore restarted = Writer(1, Round(0));
  ASSERT_TRUE(Write(restarted, 5, 4, Round(0)).ok());
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(5, 0)));
}

// A writer was killed between its rename and the removal of the other round's snapshot.
TEST_F(SnapshotStoreTest, FindsTheHighestRoundIfSnapshotsHaveTheSameStep) {
  SnapshotStore store = Writer(1);
  ASSERT_TRUE(Write(store, 5).ok());
  const std::string kept = ReadFile(PathOf(5)).value();
  SnapshotStore eighth = Writer(1, Round(8));
  ASSERT_TRUE(Write(eighth, 5, 4, Round(8)).ok());
  ASSERT_TRUE(WriteFile(PathOf(5), kept).ok());
  EXPECT_EQ(store.FindNewest()->newest->snapshot.round, Round(8));
}

TEST_F(SnapshotStoreTest, WriteRequiresTakeOver) {
  SnapshotStore store(directory_);
  ASSERT_TRUE(store.Prepare().ok());
  const std::string begin = "cannot write a snapshot of round 7 to " + directory_ + ": this process has ";
  EXPECT_EQ(Write(store, 1), FailedPreconditionError(begin + "not taken it over"));
  ASSERT_TRUE(store.TakeOver("j", Round(6)).ok());
  EXPECT_EQ(Write(store, 1), FailedPreconditionError(begin + "taken it over for round 6"));
}

TEST_F(SnapshotStoreTest, AWriterOfAnOldRoundIsRefused) {
  SnapshotStore old = Writer(3, Round(3));
  ASSERT_TRUE(Write(old, 10, 4, Round(3)).ok());
  SnapshotStore newer = Writer(3, Round(4));
  const Status refused = Write(old, 20, 4, Round(3));
  EXPECT_TRUE(IsAborted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              MatchesRegex("round 4 has taken over .*: this worker belongs to round 3"));
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(10, 3))) << "no other file, not even a temporary file";
  ASSERT_TRUE(Write(newer, 11, 4, Round(4)).ok());
  EXPECT_TRUE(IsAborted(Write(old, 20, 4, Round(3)))) << "still refused";
}

// A writer is stopped while one of its temporary files is incomplete, so before it checks its claim again, and a new round
// takes over.
TEST_F(SnapshotStoreTest, AWriterThatIsStoppedDuringAWriteIsRefusedWhenItResumes) {
  constexpr int64_t kElems = 1'000'000;
  const auto writing = [this] {
    const std::vector<std::string> files = Files();
    return std::any_of(files.begin(), files.end(), [this](const auto& name) {
      if (!name.ends_with(".tmp")) return false;
      std::error_code gone;
      const uintmax_t bytes = std::filesystem::file_size(directory_ + "/" + name, gone);
      return !gone && bytes < kElems * sizeof(float);
    });
  };
  const pid_t writer = fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    SnapshotStore store = Writer(3, Round(3));
    Status written;
    for (int64_t step = 1; written.ok(); ++step) written = Write(store, step, kElems, Round(3));
    _exit(IsAborted(written) ? 42 : 1);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int status;
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the writer was never stopped during a write";
    ASSERT_EQ(kill(writer, SIGCONT), 0);
    while (NewestStep(SnapshotStore(directory_).FindNewest().value()) < 1 || !writing()) {
      ASSERT_EQ(waitpid(writer, nullptr, WNOHANG), 0) << "the writer exited";
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
    ASSERT_EQ(kill(writer, SIGSTOP), 0);
    ASSERT_EQ(waitpid(writer, &status, WUNTRACED), writer);
    ASSERT_TRUE(WIFSTOPPED(status));
  } while (!writing());

  SnapshotStore newer = Writer(3, Round(4));
  const int64_t step = NewestStep(newer.FindNewest().value());
  ASSERT_EQ(kill(writer, SIGCONT), 0);
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
  const std::vector<std::string> left = Files();
  EXPECT_TRUE(std::ranges::none_of(left, [](const auto& name) { return name.ends_with(".tmp"); }));
  EXPECT_EQ(NewestStep(newer.FindNewest().value()), step);
  ASSERT_TRUE(Write(newer, step + 1, 4, Round(4)).ok());
  EXPECT_EQ(newer.FindNewest()->newest->snapshot.round, Round(4));
}

// A new round takes over and writes the same step right after a check of the old writer has succeeded.
TEST_F(SnapshotStoreTest, AWriterThatLosesTheDirectoryDuringAWriteRemovesNothingOfTheNewWriter) {
  for (const int stopped_at : {1, 2}) {  // 1: before the rename; 2: before the removal of old files
    SCOPED_TRACE(stopped_at);
    SetUp();
    SnapshotStore old = Writer(1, Round(3));
    ASSERT_TRUE(Write(old, 10, 4, Round(3)).ok());
    std::optional<SnapshotStore> newer;
    int checks = 0;
    old.SetAfterCheckForTest([&] {
      if (++checks != stopped_at) return;
      newer.emplace(Writer(1, Round(4)));
      ASSERT_TRUE(Write(*newer, 20, 4, Round(4)).ok());
      std::ofstream(directory_ + "/.snapshot-000000000030-r4.ddp.x.tmp") << "being written";
    });
    (void)Write(old, 20, 4, Round(3));
    ASSERT_GE(checks, stopped_at);
    EXPECT_TRUE(newer->Load(NameOf(20, 4)).ok());
    EXPECT_THAT(Files(), Contains(".snapshot-000000000030-r4.ddp.x.tmp"));
    EXPECT_TRUE(IsAborted(Write(old, 30, 4, Round(3))));
    EXPECT_TRUE(newer->Load(NameOf(20, 4)).ok());
  }
}

// Rank 0 of two rounds may have the same PID in different containers.
TEST_F(SnapshotStoreTest, NoTwoWritersHaveTheSameTemporaryFile) {
  std::set<std::string> names;
  for (int i = 0; i < 2; ++i) {
    SnapshotStore store = Writer();
    store.SetAfterCheckForTest([&] {
      for (const std::string& name : Files()) {
        if (name.ends_with(".tmp")) names.insert(name);
      }
    });
    ASSERT_TRUE(Write(store, 5).ok());
  }
  EXPECT_THAT(names, testing::SizeIs(2));
}

// The disk is full when the round begins and has space again later.
TEST_F(SnapshotStoreTest, WriteRetriesTheTakeOverThatFailedOnAFullDisk) {
  {
    SnapshotStore before = Writer();
    ASSERT_TRUE(Write(before, 1).ok());
  }
  SnapshotStore store(directory_);
  {
    const SmallFiles limit(0);
    EXPECT_TRUE(IsResourceExhausted(store.Prepare()));
    EXPECT_TRUE(IsResourceExhausted(store.TakeOver("j", Round(8))));
    EXPECT_TRUE(IsResourceExhausted(Write(store, 2, 4, Round(8))));
    EXPECT_EQ(NewestStep(store.FindNewest().value()), 1);
  }
  EXPECT_TRUE(Write(store, 2, 4, Round(8)).ok());
  EXPECT_EQ(NewestStep(store.FindNewest().value()), 2);
}

// Both the directory's claim and a snapshot appear in the directory, but their writers fail afterwards.
TEST_F(SnapshotStoreTest, ARetryAfterADirectoryErrorRemovesOldSnapshots) {
  {
    SnapshotStore before = Writer();
    ASSERT_TRUE(Write(before, 1).ok());
  }
  SnapshotStore store(directory_, 1);
  ASSERT_TRUE(store.Prepare().ok());
  WithDirectoryErrors([&] { EXPECT_FALSE(store.TakeOver("j", Round(8)).ok()); });
  ASSERT_TRUE(store.TakeOver("j", Round(8)).ok());
  WithDirectoryErrors([&] { EXPECT_FALSE(Write(store, 2, 4, Round(8)).ok()); });
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(1), NameOf(2, 8)));

  EXPECT_TRUE(Write(store, 3, 4, Round(8)).ok());
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(3, 8)));
}

// The kernel refuses to write the file's second half, as on a full disk.
TEST_F(SnapshotStoreTest, AFullDiskLeavesTheOldSnapshotsIntact) {
  SnapshotStore store = Writer(1);
  ASSERT_TRUE(Write(store, 1).ok());
  const Status status = [&] {
    const SmallFiles limit(2000);
    return Write(store, 2, 1000);
  }();

  EXPECT_TRUE(IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_ + "/.snapshot-000000000002-r7.ddp."));
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(1)));
  EXPECT_EQ(NewestStep(store.FindNewest().value()), 1);
  ASSERT_TRUE(Write(store, 2, 1000).ok()) << "the disk has space again";
}

TEST_F(SnapshotStoreTest, SystemErrorsNameTheFile) {
  EXPECT_TRUE(SnapshotStore(directory_ + "/new/deep").Prepare().ok());
  std::ofstream(directory_ + "/file") << "x";
  const auto message = [&](std::string_view where) {
    return std::string(SnapshotStore(StrCat(directory_, where)).Prepare().message());
  };
  EXPECT_THAT(message("/file"), HasSubstr(directory_ + "/file: Not a directory"));
  EXPECT_THAT(message("/file/below"), HasSubstr(directory_ + "/file/below: Not a directory"));
  EXPECT_TRUE(IsNotFound(SnapshotStore(directory_).Load(NameOf(1)).status()));
}

// Returns the value of `what` in /proc/self/status: "VmRSS" (resident memory) or "VmHWM" (its peak).
int64_t ResidentKilobytes(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes;
    if (word == what + ":" && status >> kilobytes) return kilobytes;
  }
  return -1;
}

// All ranks of a node load a snapshot at the same time, so further copies would need much memory.
TEST_F(SnapshotStoreTest, LoadingKeepsOneCopyOfTheFileInMemory) {
  constexpr int64_t kMegabytes = 64;
  const auto in_child = [](const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  ASSERT_EQ(in_child([this] {
              SnapshotStore store = Writer();
              return Write(store, 1, kMegabytes << 18).ok() ? 0 : 1;
            }),
            0);
  const int held = in_child([this] {
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    const int64_t before = ResidentKilobytes("VmRSS");
    if (NewestStep(SnapshotStore(directory_).FindNewest().value()) != 1) return 255;
    return static_cast<int>((ResidentKilobytes("VmHWM") - before) >> 10);
  });
  EXPECT_GE(held, kMegabytes);
  EXPECT_LE(held, kMegabytes * 5 / 4);
}

// A writer that is killed at any time leaves intact snapshots; the next writer removes its temporary files.
TEST_F(SnapshotStoreTest, AKilledWriterLeavesAnIntactSnapshot) {
  int64_t next_step = 1;
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    int written[2];
    ASSERT_EQ(pipe(written), 0);
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      SnapshotStore store = Writer();
      for (int64_t step = next_step;; ++step) {
        if (!Write(store, step, 50'000).ok() || write(written[1], "x", 1) != 1) _exit(1);
      }
    }
    close(written[1]);
    char byte;
    for (int i = 0; i <= kill_number % 3; ++i) ASSERT_EQ(read(written[0], &byte, 1), 1);
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    int status;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer exited by itself: " << status;
    int num_written = 1 + kill_number % 3;
    while (read(written[0], &byte, 1) == 1) ++num_written;
    close(written[0]);

    const FoundSnapshot found = SnapshotStore(directory_).FindNewest().value();
    EXPECT_THAT(found.skipped, IsEmpty());
    EXPECT_GE(NewestStep(found), next_step + num_written - 1);
    next_step = NewestStep(found) + 1;
  }
  SnapshotStore store = Writer();
  ASSERT_TRUE(Write(store, next_step).ok());
  EXPECT_THAT(Files(), ElementsAre("claim", NameOf(next_step - 2), NameOf(next_step - 1), NameOf(next_step)));
}

}  // namespace
}  // namespace ddprun
