#include "worker_sdk/snapshot/snapshot_store.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SnapshotStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/snapshotsXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }

  // A snapshot of `num_elems` elements that all are the step's number.
  static absl::Status Write(SnapshotStore& store, int64_t step, size_t num_elems = 4) {
    const std::vector<float> elems(num_elems, static_cast<float>(step));
    return store.Write(
        {.step = step, .tensors = {ViewOf("weight", {static_cast<int64_t>(num_elems)}, elems)}});
  }
  static int64_t NewestStep(const FoundSnapshot& found) {
    return found.newest ? found.newest->snapshot.step : -1;
  }
  std::vector<std::string> Files() const { return ListDirectory(directory_).value(); }
  std::string PathOf(int64_t step) const {
    return absl::StrCat(directory_, "/", SnapshotStore::NameOf(step));
  }
  void Cut(int64_t step, int64_t bytes) const {
    std::filesystem::resize_file(PathOf(step), std::filesystem::file_size(PathOf(step)) - bytes);
  }

  std::string directory_;
};

TEST_F(SnapshotStoreTest, NothingIsFoundWhereNothingIs) {
  EXPECT_EQ(NewestStep(SnapshotStore(directory_).FindNewest().value()), -1);
  EXPECT_EQ(NewestStep(SnapshotStore(directory_ + "/missing").FindNewest().value()), -1);
}

TEST_F(SnapshotStoreTest, FindsTheHighestStep) {
  SnapshotStore store(directory_);
  for (const int64_t step : {9, 100, 20}) ASSERT_TRUE(Write(store, step).ok());
  const FoundSnapshot found = store.FindNewest().value();
  EXPECT_EQ(NewestStep(found), 100);
  EXPECT_THAT(found.skipped, IsEmpty());
  EXPECT_EQ(found.newest->name, "snapshot-000000000100.ddp");
  EXPECT_EQ(found.newest->sha256, store.Load(found.newest->name)->sha256);
}

TEST_F(SnapshotStoreTest, SkipsWhatIsTornOrDamagedAndSaysWhy) {
  SnapshotStore store(directory_, 10);
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Write(store, step).ok());
  Cut(40, 1);
  std::fstream(PathOf(30), std::ios::in | std::ios::out | std::ios::binary).seekp(-3, std::ios::end).put('x');
  std::filesystem::copy_file(PathOf(10), PathOf(50));  // whole, but another one's
  const FoundSnapshot found = store.FindNewest().value();
  EXPECT_EQ(NewestStep(found), 20);
  ASSERT_EQ(found.skipped.size(), 3);
  EXPECT_EQ(found.skipped[0].reason, absl::DataLossError(PathOf(50) + ": holds step 10"));
  EXPECT_EQ(found.skipped[1].path, PathOf(40));
  EXPECT_THAT(std::string(found.skipped[1].reason.message()), HasSubstr(PathOf(40) + ": torn: "));
  EXPECT_THAT(std::string(found.skipped[2].reason.message()), HasSubstr(PathOf(30) + ": damaged: "));
}

TEST_F(SnapshotStoreTest, KeepsTheNewestAndRemovesTheRest) {
  SnapshotStore store(directory_, 2);
  std::ofstream(directory_ + "/notes.txt") << "not ours";
  for (const int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_THAT(Files(), ElementsAre("notes.txt", SnapshotStore::NameOf(3), SnapshotStore::NameOf(4)));
}

// After a resume from step 20 because 30 and 40 were torn: they do not count, however many they are.
TEST_F(SnapshotStoreTest, TornOnesOfLaterStepsDoNotPushOutAWholeOne) {
  SnapshotStore store(directory_, 1);
  ASSERT_TRUE(Write(store, 20).ok());
  for (const int64_t step : {30, 40}) std::ofstream(PathOf(step)) << "torn";
  ASSERT_TRUE(Write(store, 25).ok());
  EXPECT_EQ(NewestStep(store.FindNewest().value()), 25);
}

TEST_F(SnapshotStoreTest, WritingAStepAgainReplacesIt) {
  SnapshotStore store(directory_);
  ASSERT_TRUE(Write(store, 5, 100).ok());
  Cut(5, 10);
  ASSERT_TRUE(Write(store, 5, 200).ok());
  EXPECT_EQ(store.FindNewest()->newest->snapshot.tensors[0].shape[0], 200);
}

// The kernel refuses the file's second half, as on a full disk.
TEST_F(SnapshotStoreTest, AFullDiskIsAnErrorThatLeavesTheOldSnapshots) {
  SnapshotStore store(directory_, 1);
  ASSERT_TRUE(Write(store, 1).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 2000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Write(store, 2, 1000);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old_handler);

  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_ + "/.snapshot-000000000002.ddp."));
  EXPECT_THAT(Files(), ElementsAre(SnapshotStore::NameOf(1)));
  EXPECT_EQ(NewestStep(store.FindNewest().value()), 1);
  ASSERT_TRUE(Write(store, 2, 1000).ok()) << "there is room again";
}

TEST_F(SnapshotStoreTest, ErrorsOfTheSystemNameTheFile) {
  EXPECT_TRUE(SnapshotStore(directory_ + "/new/deep").Prepare().ok());
  std::ofstream(directory_ + "/file") << "x";
  const auto message = [&](absl::string_view where) {
    return std::string(SnapshotStore(absl::StrCat(directory_, where)).Prepare().message());
  };
  EXPECT_THAT(message("/file"), HasSubstr(directory_ + "/file: Not a directory"));
  EXPECT_THAT(message("/file/below"), HasSubstr(directory_ + "/file/below: Not a directory"));
  EXPECT_TRUE(absl::IsNotFound(SnapshotStore(directory_).Load("snapshot-000000000001.ddp").status()));
}

// A writer that is killed at any moment leaves whole snapshots, and no more temporary files than the next one
// removes.
TEST_F(SnapshotStoreTest, AKilledWriterLeavesAWholeSnapshot) {
  int64_t next_step = 1;
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    int written[2];
    ASSERT_EQ(pipe(written), 0);
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      SnapshotStore store(directory_);
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
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << status;
    int num_written = 1 + kill_number % 3;
    while (read(written[0], &byte, 1) == 1) ++num_written;
    close(written[0]);

    const FoundSnapshot found = SnapshotStore(directory_).FindNewest().value();
    EXPECT_THAT(found.skipped, IsEmpty());
    EXPECT_GE(NewestStep(found), next_step + num_written - 1);
    next_step = NewestStep(found) + 1;
  }
  SnapshotStore store(directory_);
  ASSERT_TRUE(Write(store, next_step).ok());
  EXPECT_THAT(Files(), ElementsAre(SnapshotStore::NameOf(next_step - 2), SnapshotStore::NameOf(next_step - 1),
                                   SnapshotStore::NameOf(next_step)));
}

}  // namespace
}  // namespace ddprun
