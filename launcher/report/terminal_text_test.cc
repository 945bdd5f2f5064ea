#include "launcher/report/terminal_text.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TerminalTextTest, CleansALineAsATerminalShowsIt) {
  const struct {
    absl::string_view raw;
    const char* clean;
  } kCases[] = {
      {"", ""},
      {"plain", "plain"},
      {"  indented  ", "  indented"},
      {"windows\r", "windows"},
      {" 10%|#  |\r 20%|## |", " 20%|## |"},
      {" 10%|#  |\r\r", " 10%|#  |"},
      {"a\tb", "a       b"},
      {"1234567\tb\t", "1234567 b"},
      {"\x1b[1;31mred\x1b[0m", "red"},
      {"\x1b]0;title\x07text", "text"},
      {"\x1b]8;;http://x\x1b\\link", "link"},
      {"\x1b(Btext", "Btext"},
      {"torn \x1b[3", "torn"},
      {"torn \x1b", "torn"},
      {"bell\a and \x7f", "bell and"},
      {absl::string_view("nul\0here", 8), "nulhere"},
      {"é and 漢 and 😀", "é and 漢 and 😀"},
      {"latin \xe9!", "latin ?!"},
      {"cut \xe6\xbc", "cut ??"},
      {"\xc0\xaf", "??"},
  };
  for (const auto& c : kCases) EXPECT_EQ(CleanLine(c.raw), c.clean) << c.raw;
}

TEST(TerminalTextTest, RemovesEmptyLinesAtBothEnds) {
  EXPECT_THAT(CleanLines("\n\n a\n\nb\n\x1b[0m\n\n"), ElementsAre(" a", "", "b"));
  EXPECT_THAT(CleanLines(""), IsEmpty());
  EXPECT_THAT(CleanLines("\n \n"), IsEmpty());
}

TEST(TerminalTextTest, WrapsAtBlanksOrBetweenCodePoints) {
  EXPECT_THAT(Wrap("", 5), ElementsAre(""));
  EXPECT_THAT(Wrap("12345", 5), ElementsAre("12345"));
  EXPECT_THAT(Wrap("123456", 5), ElementsAre("12345", "6"));
  EXPECT_THAT(Wrap("12345 789", 5), ElementsAre("12345", "789"));
  EXPECT_THAT(Wrap("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(Wrap("E: 4567890abc", 10), ElementsAre("E: 4567890", "abc"))
      << "the first piece must not be nearly empty";
  EXPECT_THAT(Wrap("éééééé", 4), ElementsAre("éééé", "éé"));
  EXPECT_THAT(Wrap("    4567", 6), ElementsAre("    45", "67"));
}

}  // namespace
}  // namespace ddprun
