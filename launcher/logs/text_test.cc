#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/logs/line_prefixer.h"
#include "launcher/logs/output_tail.h"

namespace ddprun {
namespace {

TEST(LinePrefixerTest, LinesStayWholeHoweverTheyArrive) {
  const std::string text = "one\n\ntwo\r\nthree";
  const std::string want = "[p]:one\n[p]:\n[p]:two\r\n[p]:three\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LinePrefixer prefixer("[p]:");
    std::string got;
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string lines = prefixer.Feed(absl::string_view(text).substr(at, piece));
      EXPECT_TRUE(lines.empty() || lines.back() == '\n');
      got += lines;
    }
    got += prefixer.Finish();
    EXPECT_EQ(got, want) << "in pieces of " << piece;
  }
}

TEST(LinePrefixerTest, NothingGivesNothing) {
  LinePrefixer prefixer("[p]:");
  EXPECT_EQ(prefixer.Feed(""), "");
  EXPECT_EQ(prefixer.Finish(), "");
  EXPECT_EQ(prefixer.Feed("x\n"), "[p]:x\n");
  EXPECT_EQ(prefixer.Finish(), "");
}

TEST(LinePrefixerTest, AnEndlessLineIsPassedOnInPieces) {
  LinePrefixer prefixer("p:");
  std::string got;
  size_t largest_held = 0;
  for (int i = 0; i < 150; ++i) {
    got += prefixer.Feed(std::string(1024, 'x'));
    largest_held = std::max<size_t>(largest_held, (i + 1) * 1024 - std::count(got.begin(), got.end(), 'x'));
  }
  EXPECT_EQ(std::count(got.begin(), got.end(), '\n'), 2);
  EXPECT_LE(largest_held, 64u << 10);
  got += prefixer.Finish();
  EXPECT_EQ(std::count(got.begin(), got.end(), 'x'), 150 * 1024);
}

TEST(OutputTailTest, KeepsTheEndFromAWholeLineOn) {
  OutputTail tail;
  EXPECT_EQ(tail.Get(), "");
  tail.Append("a\nb");
  tail.Append("c\n");
  EXPECT_EQ(tail.Get(), "a\nbc\n");
  std::string all = "a\nbc\n";
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    tail.Append(line);
    all += line;
  }
  const std::string got = tail.Get();
  EXPECT_LE(got.size(), kTailBytes);
  EXPECT_GT(got.size(), kTailBytes - 100);
  EXPECT_EQ(all.substr(all.size() - got.size()), got);
  EXPECT_EQ(got.substr(0, 5), "line ");
}

TEST(OutputTailTest, ALineLongerThanTheTail) {
  OutputTail tail;
  tail.Append(std::string(100'000, 'x') + "\n");
  EXPECT_EQ(tail.Get(), std::string(kTailBytes - 1, 'x') + "\n");
}

TEST(OutputTailTest, OfAFile) {
  EXPECT_EQ(ReadFileTail("/no/such/file"), "");
  const std::string path = absl::StrCat(testing::TempDir(), "/log");
  std::ofstream(path) << "short\n";
  EXPECT_EQ(ReadFileTail(path), "short\n");
  std::string line(100, 'y');
  line += '\n';
  std::ofstream file(path);
  for (int i = 0; i < 1000; ++i) file << line;
  file.close();
  const std::string tail = ReadFileTail(path);
  EXPECT_EQ(tail.size() % 101, 0u) << "whole lines";
  EXPECT_GT(tail.size(), kTailBytes - 101);
}

}  // namespace
}  // namespace ddprun
