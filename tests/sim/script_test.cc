#include "tests/sim/script.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/minimize.h"
#include "tests/sim/plan.h"

namespace ddprun::sim {
namespace {

TEST(ScriptTest, ParsesTheExampleInTheHeader) {
  const absl::StatusOr<Script> script = ParseScript(
      "# Anything after a '#' is a comment.\n"
      "seed 4711\n"
      "set min_nodes=2 max_nodes=4 lease_ms=3000 hosts=4\n"
      "14 fail-worker host=3 n=-9\n"
      "12.345 cut-out host=1,2 to=0 for=5  # until 17.345 s\n");
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(script->settings.seed, 4711u);
  EXPECT_EQ(script->settings.rules.max_nodes, 4);
  EXPECT_EQ(script->settings.rules.lease, seconds(3));
  ASSERT_EQ(script->faults.size(), 2u);
  EXPECT_EQ(script->faults[0], (Fault{.at = milliseconds(12345),
                                      .kind = FaultKind::kCutOut,
                                      .hosts = {1, 2},
                                      .to = {0},
                                      .length = seconds(5)}));
  EXPECT_EQ(ToString(script->faults[0]), "12.345 cut-out host=1,2 to=0 for=5.000");
  EXPECT_EQ(ToString(script->faults[1]), "14.000 fail-worker host=3 n=-9");
}

TEST(ScriptTest, ErrorsNameTheLineAndTheCause) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"seed x", "line 1: expected: seed NUMBER"},
      {"\nset min_nodes", "line 2: 'min_nodes' is not of the form NAME=VALUE"},
      {"set colour=1", "line 1: there is no setting 'colour'"},
      {"set min_nodes=one", "line 1: 'one' is not an integer"},
      {"set min_nodes=3 max_nodes=4 node_unit=2", "min_nodes is 3, expected a multiple of the node unit 2"},
      {"set lease_ms=0", "line 1: lease_ms is 0, expected 1 to 63072000000"},
      {"soon kill-agent host=0", "line 1: 'soon' is not a time in seconds"},
      {"-1 kill-agent host=0", "line 1: '-1' is not a time in seconds"},
      {"1.5", "line 1: no fault follows the time"},
      {"1.5 earthquake", "line 1: there is no fault 'earthquake'"},
      {"1.5 kill-agent host=0 why=1", "line 1: a fault has no parameter 'why'"},
      {"61 kill-agent host=0", "61.000 kill-agent host=0: the time is not before calm"},
      {"1.5 kill-agent host=7", "1.500 kill-agent host=7: there is no host 7"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<Script> script = ParseScript(c.text);
    ASSERT_FALSE(script.ok()) << c.text;
    EXPECT_EQ(script.status().message(), c.error) << c.text;
  }
}

TEST(ScriptTest, DrawnScriptsSurviveARoundTripThroughText) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Script drawn = DrawScript(seed);
    const absl::StatusOr<Script> read = ParseScript(ToString(drawn));
    ASSERT_TRUE(read.ok()) << seed << ": " << read.status();
    ASSERT_EQ(*read, drawn) << seed;
  }
}

TEST(ScriptTest, SeedsCoverEveryRule) {
  const JobRules defaults = Settings().rules;
  std::set<absl::string_view> drawn;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const JobRules rules = DrawScript(seed).settings.rules;
    for (const JobRuleField& field : JobRuleFields()) {
      if (field.get(rules) != field.get(defaults)) drawn.insert(field.name);
    }
  }
  EXPECT_EQ(drawn.size(), JobRuleFields().size());
}

TEST(ScriptTest, SeedsCoverEveryFault) {
  std::set<FaultKind> seen;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (const Fault& fault : DrawScript(seed).faults) seen.insert(fault.kind);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(FaultKind::kStopJob) + 1);
}

TEST(MinimizeTest, KeepsOnlyTheFaultsThatTheFailureNeeds) {
  Script script;
  for (int i = 0; i < 37; ++i) script.faults.push_back({.at = seconds(i), .n = i});
  int tries = 0;
  const Script small = Minimized(script, [&tries](const Script& s) {
    ++tries;
    int needed = 0;
    for (const Fault& f : s.faults) needed += f.n == 5 || f.n == 20 || f.n == 36;
    return needed == 3;
  });
  ASSERT_EQ(small.faults.size(), 3u);
  EXPECT_EQ(small.faults[0].n, 5);
  EXPECT_EQ(small.faults[1].n, 20);
  EXPECT_EQ(small.faults[2].n, 36);
  EXPECT_LT(tries, 120);
}

}  // namespace
}  // namespace ddprun::sim
