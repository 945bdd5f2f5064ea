// A thousand seeds of the pure machines, with invariants after each step.
#include "gtest/gtest.h"
#include "tests/sim/sim_world.h"

namespace ddprun::sim {
namespace {

TEST(SimTest, AThousandSeedsHold) {
  SimResult sum;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const SimResult r = RunSeed(seed, /*print=*/false);
    ASSERT_EQ(r.broken, "") << "seed " << seed << "; tools/dev sim --seeds=" << seed << ":" << seed
                            << " tells its story";
    sum.steps += r.steps;
    sum.rounds += r.rounds;
    sum.restarts += r.restarts;
    sum.kills += r.kills;
    sum.freezes += r.freezes;
    sum.cuts += r.cuts;
    sum.stalls += r.stalls;
    sum.signals += r.signals;
  }
  // The faults did come, and the job did go on.
  EXPECT_GT(sum.rounds, 1000);
  EXPECT_GT(sum.restarts, 300);
  for (const int64_t faults : {sum.kills, sum.freezes, sum.cuts, sum.stalls, sum.signals})
    EXPECT_GT(faults, 300);
  RecordProperty("steps", std::to_string(sum.steps));
}

TEST(SimTest, OneSeedIsOneStory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(RunSeed(seed, false).trace_hash, RunSeed(seed, false).trace_hash) << seed;
  }
  EXPECT_NE(RunSeed(1, false).trace_hash, RunSeed(2, false).trace_hash);
}

}  // namespace
}  // namespace ddprun::sim
