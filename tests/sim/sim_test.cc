// Runs 2,000 seeds and all scripts in tests/sim/scripts, and checks the rules after each step.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/sim/plan.h"
#include "tests/sim/script.h"
#include "tests/sim/world/sim_world.h"

namespace ddprun::sim {
namespace {

TEST(SimTest, NoneOfTwoThousandSeedsBreaksARule) {
  SimResult sum;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const SimResult r = RunSeed(seed, /*print=*/false);
    ASSERT_EQ(r.broken, "") << "seed " << seed << "; to print its trace: tools/dev sim --seed=" << seed;
    sum.Add(r);
  }
  // Checks that faults of every kind took effect, and that jobs continued after them.
  const std::string what = ToString(sum);
  for (int kind = 0; kind <= static_cast<int>(FaultKind::kStopJob); ++kind) {
    EXPECT_GE(sum.fired[static_cast<FaultKind>(kind)], 50) << ToString(static_cast<FaultKind>(kind)) << "\n"
                                                           << what;
  }
  EXPECT_GT(sum.survival.parked, 5000) << what;
  EXPECT_GT(sum.survival.survived, 3000) << what;
  EXPECT_GT(sum.survival.recovered, 500) << what;
  EXPECT_GT(sum.rounds, 4000) << what;
  EXPECT_GT(sum.restarts, 1000) << what;
  EXPECT_GT(sum.interrupts, 1000) << what;
  EXPECT_GT(sum.snapshots_waited_for, 300) << what;
  EXPECT_GT(sum.reports, 1000) << what;
  EXPECT_GT(sum.rejoins, 1000) << what;
  EXPECT_GT(sum.drained, 300) << what;
  EXPECT_GT(sum.fences, 1000) << what;
  EXPECT_GT(sum.torn_snapshots, 50) << what;
  EXPECT_GT(sum.taken_over, 0) << what;
  EXPECT_GT(sum.succeeded, 1000) << what;
  EXPECT_GT(sum.packets_lost, 10000) << what;
  EXPECT_GT(sum.takeovers, 500) << what;
  EXPECT_GT(sum.hand_overs, 200) << what;
  EXPECT_GT(sum.voter_runs, 250) << what;
  EXPECT_GT(sum.voter_takeovers, 200) << what;
  EXPECT_GT(sum.voter_hand_overs, 80) << what;
  EXPECT_GT(sum.voter_changes, 800) << what;
  EXPECT_GT(sum.quorums_lost, 80) << what;
  EXPECT_GT(sum.told_still, 200) << what;
  EXPECT_GT(sum.ended_hung, 100) << what;
  EXPECT_GT(sum.findings, 200) << what;
  EXPECT_GT(sum.late_evidence, 50) << what;
  EXPECT_GT(sum.stragglers, 15) << what;
}

TEST(SimTest, RunsOfOneSeedHaveEqualTraces) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    EXPECT_EQ(RunSeed(seed, false).trace_hash, RunSeed(seed, false).trace_hash) << seed;
  }
  EXPECT_NE(RunSeed(1, false).trace_hash, RunSeed(2, false).trace_hash);
}

TEST(SimTest, AScriptReadFromTextHasTheSameTraceAsItsSeed) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const absl::StatusOr<Script> script = ParseScript(ToString(DrawScript(seed)));
    ASSERT_TRUE(script.ok()) << script.status();
    EXPECT_EQ(RunScript(*script, false).trace_hash, RunSeed(seed, false).trace_hash) << seed;
  }
}

TEST(SimTest, NoScriptBreaksARule) {
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/sim/scripts")) {
    if (entry.path().extension() != ".sim") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const absl::StatusOr<Script> script = ParseScript(text.str());
    ASSERT_TRUE(script.ok()) << entry.path() << ": " << script.status();
    const SimResult result = RunScript(*script, false);
    EXPECT_EQ(result.broken, "") << entry.path();
    size_t fired = 0;
    for (const auto& [kind, count] : result.fired) fired += count;
    EXPECT_EQ(fired, script->faults.size()) << entry.path();
    ++scripts;
  }
  EXPECT_GE(scripts, 5);
}

TEST(SimTest, ANodeRejoinsAfterAShortCut) {
  std::stringstream text;
  text << std::ifstream("tests/sim/scripts/cut_off_for_a_moment.sim").rdbuf();
  const absl::StatusOr<Script> script = ParseScript(text.str());
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(RunScript(*script, false).rejoins, 1);
}

}  // namespace
}  // namespace ddprun::sim
