#include "worker_sdk/core/json.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(JsonTest, KeepsTheOrderOfMembersAndEscapesText) {
  Json object;
  object["z"] = 1;
  object["a"] = "line\nend \x1b caf\xc3\xa9 /";
  EXPECT_EQ(ToText(object), "{\"z\":1,\"a\":\"line\\nend \\u001b caf\xc3\xa9 /\"}");
}

TEST(JsonTest, InvalidUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(ToText(Json("caf\xe9")), "\"caf\xef\xbf\xbd\"");
}

TEST(JsonTest, ParseRejectsWhatIsNotJson) {
  for (const std::string& bad : {std::string(), std::string("{"), std::string("{} x"),
                                 std::string("\"\xff\""), std::string(100'000, '[')}) {
    EXPECT_EQ(ParseJson(bad), std::nullopt) << bad.substr(0, 20);
  }
  EXPECT_TRUE(ParseJson("{\"a\": [1, 2]}").has_value());
}

TEST(JsonTest, IntegerInTakesOnlyIntegersThatFit) {
  EXPECT_EQ(IntegerIn(*ParseJson("-3")), -3);
  EXPECT_EQ(IntegerIn(*ParseJson("9223372036854775807")), INT64_MAX);
  for (const char* bad : {"9223372036854775808", "1.0", "\"1\"", "null", "true"}) {
    EXPECT_EQ(IntegerIn(*ParseJson(bad)), std::nullopt) << bad;
  }
}

TEST(JsonTest, FindInReturnsNullForOtherValues) {
  const Json object = *ParseJson("{\"a\": 1}");
  EXPECT_EQ(*FindIn(object, "a"), 1);
  EXPECT_EQ(FindIn(object, "b"), nullptr);
  EXPECT_EQ(FindIn(*ParseJson("[1]"), "a"), nullptr);
}

}  // namespace
}  // namespace ddprun
