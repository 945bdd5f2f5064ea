#include "launcher/config/safe_substitute.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(SafeSubstituteTest, FollowsPythonTemplates) {
  const std::map<std::string, std::string> values = {{"a", "1"}, {"name", "$a"}, {"a_2", "long"}};
  const struct {
    const char* text;
    const char* want;
  } kCases[] = {{"", ""},
                {"plain", "plain"},
                {"$a", "1"},
                {"${a}", "1"},
                {"x${a}y$a.z", "x1y1.z"},
                {"$a_2 ${a}_2", "long 1_2"},
                {"$ab ${ab} ${a b} ${ a}", "$ab ${ab} ${a b} ${ a}"},
                {"$A", "$A"},
                {"$name", "$a"},  // values are not scanned again
                {"$$a $$$a $$", "$a $1 $"},
                {"5$ $5 $-", "5$ $5 $-"},
                {"${a ${", "${a ${"},
                {"${}", "${}"},
                {"${a$a}", "${a1}"}};
  for (const auto& c : kCases) EXPECT_EQ(SafeSubstitute(c.text, values), c.want) << c.text;
}

}  // namespace
}  // namespace ddprun
