#include "launcher/scheduler/host_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(HostListTest, ExpandsNamesAndRanges) {
  EXPECT_THAT(*ExpandHostList("a"), ElementsAre("a"));
  EXPECT_THAT(*ExpandHostList("a,b-2.example"), ElementsAre("a", "b-2.example"));
  EXPECT_THAT(*ExpandHostList("node[01-03,7],x"), ElementsAre("node01", "node02", "node03", "node7", "x"));
  EXPECT_THAT(*ExpandHostList("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(*ExpandHostList("n[099-101]"), ElementsAre("n099", "n100", "n101"));
  EXPECT_THAT(*ExpandHostList("n[5]-ib"), ElementsAre("n5-ib"));
}

TEST(HostListTest, SeveralBracketsGiveAllCombinations) {
  EXPECT_THAT(*ExpandHostList("r[1-2]n[08-09]s"), ElementsAre("r1n08s", "r1n09s", "r2n08s", "r2n09s"));
}

TEST(HostListTest, ErrorsStateTheCause) {
  const struct {
    const char* text;
    const char* words;
  } kBad[] = {
      {"", "an empty name"},
      {"a,,b", "an empty name"},
      {"a,", "an empty name"},
      {"n[1-3", "'[' without ']'"},
      {"n1-3]", "']' without '['"},
      {"n[]", "expected numbers and ranges"},
      {"n[a-b]", "expected numbers and ranges"},
      {"n[1-2-3]", "expected numbers and ranges"},
      {"n[1,]", "expected numbers and ranges"},
      {"n[-1]", "expected numbers and ranges"},
      {"n[[1]]", "expected numbers and ranges"},
      {"n[3-1]", "from a lower to a higher number"},
      {"n[1-99999999999999999999]", "expected numbers and ranges"},
      {"n[1-999999999999]", "more than 1048576 hosts"},
      {"n[1-2000]m[1-2000]", "more than 1048576 hosts"},
      {"n[1-1048576],x", "more than 1048576 hosts"},
  };
  for (const auto& bad : kBad) {
    const auto hosts = ExpandHostList(bad.text);
    ASSERT_FALSE(hosts.ok()) << bad.text;
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(hosts.status().message()), HasSubstr(bad.words)) << bad.text;
  }
  EXPECT_THAT(*ExpandHostList("n[1-1048576]"), SizeIs(1048576));
}

}  // namespace
}  // namespace ddprun
