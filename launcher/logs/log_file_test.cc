#include "launcher/logs/log_file.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class LogFileTest : public testing::Test {
 protected:
  LogFileTest() {
    std::string dir = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(dir.data()), nullptr);
    path_ = dir + "/log";
  }
  std::unique_ptr<LogFile> Open(int64_t max_bytes) {
    auto file = LogFile::Open(path_, max_bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Newer() const { return Contents(path_); }
  std::string Older() const { return Contents(path_ + ".1"); }

  std::string path_;
};

TEST_F(LogFileTest, KeepsAllBytesWithoutALimit) {
  std::ofstream(path_) << "of an earlier run";
  const auto file = Open(0);
  const std::string bytes("one\ntw\0o\r\n\n\nend", 16);
  EXPECT_EQ(file->Write(absl::string_view(bytes).substr(0, 5)), 5u);
  EXPECT_EQ(file->Write(absl::string_view(bytes).substr(5)), 11u);
  EXPECT_EQ(Newer(), bytes);
  EXPECT_EQ(file->size(), 16);
  EXPECT_GT(file->room(), 1 << 30);
  char read[4];
  EXPECT_EQ(file->Read(4, read, 4), 4);
  EXPECT_EQ(std::string(read, 4), std::string("tw\0o", 4));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".1"));
}

TEST_F(LogFileTest, OpenErrorsNameThePath) {
  const auto file = LogFile::Open("/no/such/log", 0);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/no/such/log"));
}

// After each random write, the two files together are within the limit and contain the newest bytes in order.
// Each of the two files begins at the start of a line.
TEST_F(LogFileTest, StaysWithinTheLimitAfterEachWrite) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  constexpr int64_t kMax = 8192;
  const auto file = Open(kMax);
  std::string all;
  bool rotated = false;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes;
    for (size_t lines = below(4); lines > 0; --lines) {
      bytes += std::string(below(300), static_cast<char>('a' + below(26))) + "\n";
    }
    bytes += std::string(below(40), 'p');  // continued by the next write
    ASSERT_EQ(file->Write(bytes), bytes.size());
    all += bytes;
    const std::string on_disk = Older() + Newer();
    ASSERT_LE(on_disk.size(), static_cast<size_t>(kMax));
    ASSERT_TRUE(absl::EndsWith(all, on_disk)) << "the files must contain the newest bytes";
    if (on_disk.size() == all.size()) continue;
    rotated = true;
    ASSERT_GT(on_disk.size(), static_cast<size_t>(kMax) / 2 - 1000);
    ASSERT_EQ(Older().back(), '\n');
    ASSERT_EQ(all[all.size() - on_disk.size() - 1], '\n')
        << "the older file must begin at the start of a line";
  }
  EXPECT_TRUE(rotated);
  EXPECT_TRUE(file->TakeProblem().ok());
}

TEST_F(LogFileTest, KeepsTheEndOfAWriteLargerThanTheLimit) {
  std::string all;
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&all, "line ", i, "\n");
  EXPECT_EQ(Open(8192)->Write(all), all.size());
  EXPECT_TRUE(absl::EndsWith(all, Older() + Newer()));
  EXPECT_GT(Older().size() + Newer().size(), 4000u);
  EXPECT_LE(Older().size() + Newer().size(), 8192u);
}

TEST_F(LogFileTest, SplitsALineLongerThanAFile) {
  const auto file = Open(8192);
  file->Write("short\n");
  std::string line;
  for (int i = 0; i < 5'000; ++i) absl::StrAppend(&line, i, " ");
  for (const char c : line) file->Write(absl::string_view(&c, 1));
  file->Write("\nlast\n");
  EXPECT_TRUE(absl::EndsWith("short\n" + line + "\nlast\n", Older() + Newer()));
  EXPECT_GT(Older().size() + Newer().size(), 4000u);
  EXPECT_LE(Older().size() + Newer().size(), 8192u);
}

TEST_F(LogFileTest, RoomIsTheNumberOfBytesBeforeARotation) {
  const auto file = Open(8192);
  EXPECT_EQ(file->room(), 8192 / 2 - FileWriter::kGapLineBytes);
  file->Write(std::string(2999, 'x') + "\n");
  EXPECT_EQ(file->size(), 3000);
  EXPECT_EQ(file->room(), 8192 / 2 - FileWriter::kGapLineBytes - 3000);
  EXPECT_EQ(file->rotations(), 0);
  file->Write(std::string(2999, 'x') + "\n");
  EXPECT_EQ(file->rotations(), 1);
}

TEST_F(LogFileTest, ReportsAFailedRotationOnceAndStopsWriting) {
  const auto file = Open(8192);
  std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  for (int i = 0; i < 10; ++i) file->Write(std::string(999, 'x') + "\n");
  EXPECT_THAT(std::string(file->TakeProblem().message()), HasSubstr("cannot rename " + path_));
  EXPECT_TRUE(file->TakeProblem().ok());
  EXPECT_EQ(file->room(), 0);
}

}  // namespace
}  // namespace ddprun
