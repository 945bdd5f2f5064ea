#include "worker_sdk/ledger/ledger_file.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/worker_env.h"
#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ledger/ledger_keeper.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kDay = 1'795'248'000'000'000;

LedgerEntry Entry(int64_t round) {
  return {.job = -3,
          .round = round,
          .restart_count = 2,
          .world_size = 4,
          .begin_us = kDay,
          .spent_us = {1, 2, 3, 4},
          .first_step = 5,
          .last_step = 6};
}

class LedgerFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/ledgerXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    path_ = name + "/ledger";
  }
  LedgerFile Open() const {
    StatusOr<LedgerFile> file = LedgerFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::vector<LedgerEntry> Entries() const { return Open().earlier(); }
  void Append(const LedgerEntry& entry) const { ASSERT_TRUE(Open().Write(entry).ok()); }

  std::string path_;
};

TEST_F(LedgerFileTest, EachProcessHasOneEntry) {
  EXPECT_THAT(Entries(), IsEmpty());
  {
    LedgerFile file = Open();
    for (int64_t round : {9, 9, 1}) ASSERT_TRUE(file.Write(Entry(round)).ok());
  }
  EXPECT_THAT(Entries(), ElementsAre(Entry(1)));
  {
    LedgerFile file = Open();
    EXPECT_THAT(file.earlier(), ElementsAre(Entry(1)));
    for (int64_t round : {9, 2}) ASSERT_TRUE(file.Write(Entry(round)).ok());
  }
  Append(Entry(3));
  EXPECT_THAT(Entries(), ElementsAre(Entry(1), Entry(2), Entry(3)));
  EXPECT_THAT(Open().remark(), IsEmpty());
}

// The format is documented, and later versions must be able to read it.
TEST_F(LedgerFileTest, TheBytesMatchTheDocumentedFormat) {
  Append(Entry(1));
  const std::string bytes = ReadFile(path_).value();
  ASSERT_EQ(bytes.size(), 16 + 88);
  EXPECT_EQ(bytes.substr(0, 16), std::string("ddpledg\n\x01\0\0\0\x58\0\0\0", 16));
  EXPECT_EQ(bytes.substr(16, 16), std::string("\xfd\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0\0\0\0\0", 16));
}

TEST_F(LedgerFileTest, EntriesSurviveAKilledWriter) {
  const pid_t writer = fork();
  ASSERT_GE(writer, 0);
  if (writer == 0) {
    LedgerFile file = Open();
    for (int64_t step = 6; step < 1000; ++step) {
      LedgerEntry entry = Entry(1);
      entry.last_step = step;
      if (!file.Write(entry).ok()) _exit(1);
    }
    raise(SIGKILL);
  }
  int status;
  ASSERT_EQ(waitpid(writer, &status, 0), writer);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  ASSERT_EQ(Entries().size(), 1);
  EXPECT_EQ(Entries()[0].last_step, 999);
}

TEST_F(LedgerFileTest, ATornEntryIsOverwritten) {
  Append(Entry(1));
  Append(Entry(2));
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_THAT(Entries(), ElementsAre(Entry(1)));
  Append(Entry(3));
  EXPECT_THAT(Entries(), ElementsAre(Entry(1), Entry(3)));
}

TEST_F(LedgerFileTest, AnInvalidFileIsRenamedWithARemark) {
  Append(Entry(1));
  const std::string good = ReadFile(path_).value();
  std::string later = good, zeros = good + std::string(88, '\0');
  later[8] = 2;
  const struct {
    std::string bytes, why;
  } kCases[] = {
      {"my notes", "not a ledger"},
      {"a file of more than sixteen bytes", "not a ledger"},
      {later, "version 2, but this program supports version 1"},
      {zeros, "entry 2 is implausible"},
  };
  for (const auto& [bytes, why] : kCases) {
    ASSERT_TRUE(WriteFile(path_, bytes).ok());
    {
      LedgerFile file = Open();
      EXPECT_EQ(file.remark(), StrCat(path_, ": ", why, ": moved to ", path_, ".old, starting a new ledger"));
      EXPECT_THAT(file.earlier(), IsEmpty());
      ASSERT_TRUE(file.Write(Entry(4)).ok());
    }
    EXPECT_EQ(ReadFile(path_ + ".old").value(), bytes);
    EXPECT_THAT(Entries(), ElementsAre(Entry(4)));
  }
}

TEST_F(LedgerFileTest, AnEmptyFileIsANewLedger) {
  ASSERT_TRUE(WriteFile(path_, "").ok());
  EXPECT_THAT(Open().remark(), IsEmpty());
}

TEST_F(LedgerFileTest, ErrorsNameTheFile) {
  path_ += "/below";
  EXPECT_THAT(std::string(LedgerFile::Open(path_).status().message()), HasSubstr(path_));
}

// Runs LedgerKeeper with times chosen by the test.
TEST_F(LedgerFileTest, EveryMomentIsBookedOnce) {
  const TimePoint begin{seconds(1000)};
  WorkerEnv env;
  env.run_id = "j";
  env.round = Round(1);
  {
    LedgerKeeper ledger(env, kDay, begin);
    ASSERT_EQ(ledger.KeepIn(path_).value(), "");
    ASSERT_TRUE(ledger.Ready(0, begin + seconds(2)).ok());
    ASSERT_TRUE(ledger.StepDone(1, begin + seconds(5)).ok());
    ledger.Book(Activity::kOther, begin + seconds(6));
    ledger.Book(Activity::kSnapshots, begin + seconds(10));
    ASSERT_TRUE(ledger.StepDone(2, begin + seconds(15)).ok());
    ledger.Book(Activity::kOther, begin + seconds(21));  // never written, as if the process were killed here
  }
  env.round = Round(2);
  env.restart_count = 1;
  LedgerKeeper ledger(env, kDay + 18'000'000, begin);
  ASSERT_EQ(ledger.KeepIn(path_).value(), "");
  ASSERT_TRUE(ledger.Ready(1, begin + std::chrono::nanoseconds(1'000'000'900)).ok());
  ASSERT_TRUE(ledger.StepDone(2, begin + std::chrono::nanoseconds(2'000'001'800)).ok());
  const Balance b = ledger.Total();
  EXPECT_EQ(b.steps, 2);
  EXPECT_EQ(b.lost_steps, 1);
  EXPECT_EQ(b.in_rendezvous, seconds(3));
  EXPECT_EQ(b.in_steps, seconds(4 + 1) + std::chrono::microseconds(1)) << "rounding loses no time";
  EXPECT_EQ(b.in_lost_steps, seconds(4));
  EXPECT_EQ(b.in_snapshots, seconds(4));
  EXPECT_EQ(b.in_other, seconds(1));
  EXPECT_EQ(b.in_restart, seconds(3)) << "unwritten time is part of the gap";
}

TEST(LedgerKeeperTest, WithoutAFileTheTotalCoversOnlyThisProcess) {
  const TimePoint begin{seconds(1000)};
  LedgerKeeper ledger(WorkerEnv(), kDay, begin);
  ASSERT_TRUE(ledger.Ready(5, begin + seconds(1)).ok());
  ASSERT_TRUE(ledger.StepDone(6, begin + seconds(2)).ok());
  EXPECT_EQ(ledger.Total().steps, 1);
}

}  // namespace
}  // namespace ddprun
