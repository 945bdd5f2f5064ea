#include "worker_sdk/core/strings.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(StringsTest, StrCatJoinsTextAndNumbers) {
  EXPECT_EQ(StrCat(), "");
  EXPECT_EQ(StrCat("a", std::string("b"), std::string_view("c"), -1, uint64_t{1} << 63, true),
            "abc-19223372036854775808" + std::string("1"));
  EXPECT_EQ(StrCat(0.5, " ", 1e10, " ", 1234567.0), "0.5 1e+10 1.23457e+06");
  std::string text = "x";
  StrAppend(&text, 1, "y");
  EXPECT_EQ(text, "x1y");
}

TEST(StringsTest, StrJoinPutsTheSeparatorBetweenElements) {
  EXPECT_EQ(StrJoin(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
  EXPECT_EQ(StrJoin(std::vector<std::string>{}, ", "), "");
}

TEST(StringsTest, StrSplitKeepsEmptyPieces) {
  EXPECT_THAT(StrSplit("a b  c", ' '), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(StrSplit("", ' '), ElementsAre(""));
}

TEST(StringsTest, FormatWritesWhatPrintfWrites) {
  EXPECT_EQ(Format("%d %s %.2f", 7, "text", 0.5), "7 text 0.50");
  EXPECT_EQ(Format("%s", std::string(1000, 'x').c_str()), std::string(1000, 'x'));
}

TEST(StringsTest, ParseNumberTakesTheWholeText) {
  EXPECT_EQ(ParseNumber<int>("-12"), -12);
  EXPECT_EQ(ParseNumber<int64_t>("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", " 1", "1 ", "+1", "1x", "99999999999"}) {
    EXPECT_EQ(ParseNumber<int>(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(ParseNumber<unsigned>("-1"), std::nullopt);
}

TEST(StringsTest, ConsumeRemovesAPrefixOrASuffix) {
  std::string_view text = "snapshot-7.ddp";
  EXPECT_FALSE(ConsumePrefix(&text, "snap_"));
  EXPECT_TRUE(ConsumePrefix(&text, "snapshot-"));
  EXPECT_TRUE(ConsumeSuffix(&text, ".ddp"));
  EXPECT_FALSE(ConsumeSuffix(&text, "77"));
  EXPECT_EQ(text, "7");
}

TEST(StringsTest, HexRoundTrips) {
  const std::string bytes("\x00\x7f\xff", 3);
  EXPECT_EQ(ToHex(bytes), "007fff");
  EXPECT_EQ(FromHex("007FFf"), bytes);
  for (const char* bad : {"0", "0g", "-1", " 1", "0x"}) EXPECT_EQ(FromHex(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace ddprun
