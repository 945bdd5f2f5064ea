#include <sys/stat.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/logs/lines.h"
#include "launcher/logs/output_tail.h"

namespace ddprun {
namespace {

TEST(LinePrefixTest, UsesTorchrunsDefaultOrTheTemplate) {
  const LineOrigin origin = {
      .role = "default", .local_rank = LocalRank(1), .rank = Rank(9), .hostname = "n3.example"};
  EXPECT_EQ(FormatPrefix("", origin), "[default1]:");
  EXPECT_EQ(FormatPrefix("[${rank}]", origin), "[9]");
  EXPECT_EQ(FormatPrefix("${hostname}:$rank ${role_name}/${local_rank}: ", origin),
            "n3.example:9 default/1: ");
  EXPECT_EQ(FormatPrefix("${Rank} $$rank $ranks ${user}", origin), "${Rank} $rank $ranks ${user}");
}

std::string Feed(LinePrefixer& prefixer, absl::string_view bytes) {
  std::string lines;
  prefixer.Feed(bytes, lines);
  return lines;
}

std::string Finish(LinePrefixer& prefixer) {
  std::string lines;
  prefixer.Finish(lines);
  return lines;
}

TEST(LinePrefixerTest, LinesAreWholeForAnyPieceSize) {
  const std::string text = "one\n\ntwo\r\n50%\r100%\r\r\n\nthree";
  const std::string want = "[p]:one\n[p]:\n[p]:two\n[p]:50%\n[p]:100%\n[p]:\n[p]:\n[p]:three\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LinePrefixer prefixer("[p]:");
    std::string got;
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string lines = Feed(prefixer, absl::string_view(text).substr(at, piece));
      EXPECT_TRUE(lines.empty() || lines.back() == '\n');
      got += lines;
    }
    EXPECT_TRUE(prefixer.holds());
    got += Finish(prefixer);
    EXPECT_FALSE(prefixer.holds());
    EXPECT_EQ(got, want) << "in pieces of " << piece;
  }
}

TEST(LinePrefixerTest, EmptyInputGivesNoLines) {
  LinePrefixer prefixer("[p]:");
  EXPECT_EQ(Feed(prefixer, ""), "");
  EXPECT_EQ(Finish(prefixer), "");
  EXPECT_EQ(Feed(prefixer, "x\n"), "[p]:x\n");
  EXPECT_EQ(Finish(prefixer), "");
}

TEST(LinePrefixerTest, KeepsBytesThatAreNotText) {
  LinePrefixer prefixer("p:");
  const std::string bytes("\xff\xc3\0\x01\xe2\x82", 6);
  EXPECT_EQ(Feed(prefixer, bytes + "\n"), "p:" + bytes + "\n");
}

TEST(LinePrefixerTest, EachStepOfAProgressBarIsALine) {
  LinePrefixer prefixer("p:");
  EXPECT_EQ(Feed(prefixer, "10%\r"), "p:10%\n");
  EXPECT_EQ(Feed(prefixer, "20%\r"), "p:20%\n");
  EXPECT_EQ(Feed(prefixer, "\n30%"), "") << "\"\\n\" after \"\\r\" must not begin a new line";
  EXPECT_EQ(Feed(prefixer, "\n"), "p:30%\n");
}

TEST(LinePrefixerTest, KeepsLongLinesWholeUpToTheLimit) {
  constexpr size_t kMax = LinePrefixer::kMaxLine;
  for (const size_t piece : {kMax / 16, kMax / 2 + 1, kMax, kMax + 1, 3 * kMax}) {
    LinePrefixer prefixer("p:");
    const std::string longest(kMax, 'x');
    const std::string text = absl::StrCat(longest, "\n", longest, longest, "y\nz\n");
    const std::string want = absl::StrCat("p:", longest, "\np:", longest, "\np:", longest, "\np:y\np:z\n");
    std::string got;
    for (size_t at = 0; at < text.size(); at += piece) got += Feed(prefixer, text.substr(at, piece));
    EXPECT_TRUE(got == want) << "in pieces of " << piece << ": " << got.size() << " bytes instead of "
                             << want.size();
  }
}

TEST(OutputTailTest, KeepsTheLastWholeLines) {
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

TEST(OutputTailTest, TruncatesALineLongerThanTheTail) {
  OutputTail tail;
  tail.Append(std::string(100'000, 'x') + "\n");
  EXPECT_EQ(tail.Get(), std::string(kTailBytes - 1, 'x') + "\n");
}

TEST(OutputTailTest, ReadsTheTailOfAFile) {
  EXPECT_EQ(ReadFileTail("/no/such/file"), "");
  EXPECT_EQ(ReadFileTail(testing::TempDir()), "");
  // A FIFO must not block the caller.
  const std::string fifo = absl::StrCat(testing::TempDir(), "/fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(ReadFileTail(fifo), "");
  const std::string path = absl::StrCat(testing::TempDir(), "/log");
  std::ofstream(path) << "short\n";
  EXPECT_EQ(ReadFileTail(path), "short\n");
  std::string line(100, 'y');
  line += '\n';
  std::ofstream file(path);
  for (int i = 0; i < 1000; ++i) file << line;
  file.close();
  const std::string tail = ReadFileTail(path);
  EXPECT_EQ(tail.size() % 101, 0u) << "the tail must consist of whole lines";
  EXPECT_GT(tail.size(), kTailBytes - 101);
}

// Returns the output of Feed for each of `pieces`, followed by the output of Finish.
std::vector<std::string> OutputsOf(const std::vector<std::string>& pieces) {
  LineHolder holder;
  std::vector<std::string> out;
  for (const std::string& piece : pieces) holder.Feed(piece, out.emplace_back());
  holder.Finish(out.emplace_back());
  return out;
}

TEST(LineHolderTest, PassesWholeLinesUnchanged) {
  using V = std::vector<std::string>;
  EXPECT_EQ(OutputsOf({"one\ntw", "o\n", "end"}), (V{"one\n", "two\n", "", "end"}));
  EXPECT_EQ(OutputsOf({"10%\r20%\r", "30%"}), (V{"10%\r", "20%\r", "30%"}));
  EXPECT_EQ(OutputsOf({"a\r\nb\r", "\nc\n"}), (V{"a\r\n", "b\r\nc\n", ""}));
  EXPECT_EQ(OutputsOf({"\n\n", "", "\r"}), (V{"\n\n", "", "", "\r"}));
  const std::string nul("x\0y\nz", 5);
  EXPECT_EQ(OutputsOf({nul}), (V{nul.substr(0, 4), "z"}));
}

TEST(LineHolderTest, DoesNotHoldBackLinesLongerThanTheLimit) {
  LineHolder holder;
  std::string out;
  for (size_t fed = 0; fed <= LineHolder::kMaxLine; fed += 1 << 20)
    holder.Feed(std::string(1 << 20, 'x'), out);
  EXPECT_GT(out.size(), LineHolder::kMaxLine);
  EXPECT_FALSE(holder.holds());
}

}  // namespace
}  // namespace ddprun
