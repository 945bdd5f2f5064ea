#include "proto/utf8.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(Utf8Test, KeepsValidText) {
  for (const char* text : {"", "plain", "na\u00efve \u20ac \U0001F600", "\u0800\uFFFD\U0010FFFF"}) {
    EXPECT_EQ(Utf8Head(text, 100), text);
    EXPECT_EQ(Utf8Tail(text, 100), text);
  }
  const std::string nul("a\0b", 3);
  EXPECT_EQ(Utf8Head(nul, 100), nul);
}

TEST(Utf8Test, ReplacesInvalidBytes) {
  const struct {
    std::string bytes;
    const char* text;
  } cases[] = {
      {"a\xFF"
       "b",
       "a\uFFFDb"},
      {"\x80", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // a surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // beyond U+10FFFF
      {"x\xE2\x82", "x\uFFFD\uFFFD"},                    // truncated
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Utf8Head(c.bytes, 100), c.text);
    EXPECT_EQ(Utf8Tail(c.bytes, 100), c.text);
  }
}

TEST(Utf8Test, CutsBetweenCharacters) {
  const std::string euros = "\u20ac\u20ac\u20ac";  // three bytes each
  EXPECT_EQ(Utf8Head(euros, 7), "\u20ac\u20ac");
  EXPECT_EQ(Utf8Tail(euros, 7), "\u20ac\u20ac");
  EXPECT_EQ(Utf8Head(euros, 2), "");
  EXPECT_EQ(Utf8Tail(euros, 2), "");
  EXPECT_EQ(Utf8Head("abc", 2), "ab");
  EXPECT_EQ(Utf8Tail("abc", 2), "bc");
  // A replacement character counts as three bytes.
  EXPECT_EQ(Utf8Head("\xFF\xFF\xFF", 7), "\uFFFD\uFFFD");
  EXPECT_EQ(Utf8Tail("\xFF\xFF\xFF", 7), "\uFFFD\uFFFD");
}

TEST(Utf8LineTest, ControlCharactersBecomeBlanks) {
  EXPECT_EQ(Utf8Line("a\nb\x1b[31m\x7f\xc2\x85"
                     "c",
                     100),
            "a b [31m  c");
  EXPECT_EQ(Utf8Line("\xc2\xb5 \xc3\xa9", 100), "\xc2\xb5 \xc3\xa9");
  EXPECT_EQ(Utf8Line("abcdef", 3), "abc");
  EXPECT_EQ(FindControl("abc"), absl::string_view::npos);
}

}  // namespace
}  // namespace ddprun
