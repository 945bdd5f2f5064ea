#include "rendezvous/voters/voter_set.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// "ab" are the voters a and b. The first one breaks ties.
VoterGroup Group(const std::string& ids) {
  VoterGroup group;
  for (const char id : ids) group.voters.push_back({std::string(1, id), std::string("host-") + id});
  if (!ids.empty()) group.tie_breaker = ids.substr(0, 1);
  return group;
}

std::set<std::string> Ids(const std::string& ids) {
  std::set<std::string> set;
  for (const char id : ids) set.insert(std::string(1, id));
  return set;
}

TEST(VoterSetTest, QuorumsOfAGroup) {
  struct Case {
    const char* voters;
    const char* ids;
    bool quorum;
  };
  for (const Case& c :
       {Case{"", "", false}, Case{"", "a", false}, Case{"a", "", false}, Case{"a", "a", true},
        Case{"a", "b", false}, Case{"ab", "a", true}, Case{"ab", "b", false}, Case{"ab", "ab", true},
        Case{"abc", "a", false}, Case{"abc", "bc", true}, Case{"abc", "cx", false}, Case{"abcd", "ab", true},
        Case{"abcd", "bc", false}, Case{"abcd", "bcd", true}, Case{"abcd", "a", false},
        Case{"abcde", "ab", false}, Case{"abcde", "cde", true}}) {
    EXPECT_EQ(IsQuorum(Group(c.voters), Ids(c.ids)), c.quorum) << c.ids << " of " << c.voters;
  }
}

TEST(VoterSetTest, WithoutATieBreakerHalfIsNoQuorum) {
  VoterGroup group = Group("ab");
  group.tie_breaker = "";
  EXPECT_FALSE(IsQuorum(group, Ids("a")));
  EXPECT_FALSE(IsQuorum(group, Ids("b")));
  EXPECT_TRUE(IsQuorum(group, Ids("ab")));
}

TEST(VoterSetTest, AnyTwoQuorumsHaveAVoterInCommon) {
  const std::string all = "abcde";
  for (size_t n = 1; n <= all.size(); ++n) {
    const VoterGroup group = Group(all.substr(0, n));
    for (unsigned part = 0; part < 1U << n; ++part) {
      std::set<std::string> in, out;
      for (size_t i = 0; i < n; ++i) (part & 1U << i ? in : out).insert(all.substr(i, 1));
      EXPECT_FALSE(IsQuorum(group, in) && IsQuorum(group, out)) << n << " voters, part " << part;
    }
  }
}

TEST(VoterSetTest, BothGroupsOfASetHaveToAgree) {
  const VoterSet set = {.number = 2, .now = Group("cde"), .before = Group("abc")};
  EXPECT_FALSE(IsQuorum(set, Ids("ab")));
  EXPECT_FALSE(IsQuorum(set, Ids("de")));
  EXPECT_TRUE(IsQuorum(set, Ids("abde")));
  EXPECT_TRUE(IsQuorum(set, Ids("acd"))) << "c is a voter of both";
  EXPECT_TRUE(IsQuorum(VoterSet{.number = 2, .now = Group("cde")}, Ids("de")));
}

TEST(VoterSetTest, AllVotersAreListedOnce) {
  std::string ids;
  for (const Voter& voter : AllVoters({.number = 2, .now = Group("cde"), .before = Group("abc")}))
    ids += voter.id;
  EXPECT_EQ(ids, "cdeab");
  EXPECT_EQ(AllVoters({.number = 2, .now = Group("cde")}), Group("cde").voters);
}

}  // namespace
}  // namespace ddprun
