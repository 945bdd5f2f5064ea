// Kills and stops random ranks at random moments within all operations: every other rank gets an error that names the
// victim. DDPRUN_FAULTS sets the number of faults, and DDPRUN_FAULT_SEED the first seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/host/fault_scenarios.h"
#include "worker_sdk/comm/host/rank_expectations.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperations[] = {"all-reduce",     "shared-all-reduce", "shared-in-place", "reduce",
                                       "reduce-scatter", "all-gather",        "all-to-all",      "broadcast",
                                       "barrier",        "messages",          "split",           "allocate"};

int64_t Setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// The error of a rank whose deadline passed, or of one that waited for it.
void ExpectNames(const std::string& outcome, int victim, bool killed) {
  if (killed) {
    EXPECT_THAT(outcome, HasSubstr(StrCat("UNAVAILABLE: ")));
    EXPECT_THAT(outcome, HasSubstr(StrCat("rank ", victim, " of round 7 is gone")));
  } else {
    EXPECT_THAT(outcome, HasSubstr("DEADLINE_EXCEEDED"));
    EXPECT_THAT(outcome,
                testing::AnyOf(testing::EndsWith(StrCat("waiting for rank ", victim)),
                               HasSubstr(StrCat("split, waiting for rank ", victim, ": ")),
                               HasSubstr(StrCat("rank ", victim, " of round 7 did not appear within"))));
  }
}

// Runs the scenario of `seed`. `fired`: set if the victim was within an operation.
void RunFault(uint64_t seed, bool* fired) {
  const bool killed = seed / std::size(kOperations) % 2 == 0;
  std::mt19937 random(static_cast<uint32_t>(seed));
  const std::vector<std::vector<int>> splits = {{2}, {3}, {4}, {1, 1}, {2, 2}, {3, 1}, {1, 1, 1}};
  const std::vector<int>& split = splits[random() % splits.size()];
  int world = 0;
  for (const int n : split) world += n;
  const int victim = static_cast<int>(random() % world);
  const int64_t n = random() % 2 == 0 ? 1 + random() % 500 : 1 + random() % 1'000'000;
  const std::string kind = kOperations[seed % std::size(kOperations)];
  const int64_t number = kind == "split" ? 1 + random() % 4 : 3 + random() % 20;
  const int64_t delay_ns = random() % (random() % 2 == 0 ? 100'000 : 3'000'000);
  SCOPED_TRACE(StrCat("seed ", seed, ": ", killed ? "killed" : "stopped", " within ", kind, " of ", n,
                      " floats, split ", NameOfSplit(split), ", victim ", victim, ", operation ", number,
                      " + ", delay_ns, " ns"));
  RankProcesses ranks(split, {"fault", kind, StrCat(n), StrCat(victim), StrCat(killed ? SIGKILL : SIGSTOP),
                              StrCat(number), StrCat(delay_ns)});
  FaultBoard board(ranks.store_dir());
  ranks.StartAll();
  for (int r = 0; r < world; ++r) {
    if (r == victim) continue;
    ExpectExit(ranks, r, kEnded, seconds(60));
  }
  const int64_t fault = board.fault_ns(victim).load();
  ASSERT_NE(fault, 0) << "the fault has not fired; outcomes: " << OutcomeOf(ranks, (victim + 1) % world);
  if (killed) {
    EXPECT_TRUE(ranks.Wait(victim, seconds(10)).has_value());
  } else {
    EXPECT_TRUE(ranks.IsStopped(victim));
  }
  if (board.operation(victim) < number) return;  // in the moment between two operations
  *fired = true;
  const Duration deadline = kind == "split" ? kFaultSetupTimeout : kFaultDeadline;
  const double limit = (killed ? 0 : Seconds(std::chrono::nanoseconds(deadline).count())) + 1;
  for (int r = 0; r < world; ++r) {
    if (r == victim) continue;
    SCOPED_TRACE(StrCat("rank ", r));
    EXPECT_LT(Seconds(board.error_ns(r).load() - fault), limit);
    ExpectNames(OutcomeOf(ranks, r), victim, killed);
  }
}

TEST(FaultTest, AnyRankThatFailsWithinAnyOperationIsNamedByAllOthers) {
  const int64_t count = Setting("DDPRUN_FAULTS", 24), first = Setting("DDPRUN_FAULT_SEED", 1);
  int64_t num_fired = 0;
  for (int64_t i = 0; i < count; ++i) {
    bool fired = false;
    RunFault(first + i, &fired);
    num_fired += fired;
  }
  EXPECT_GE(num_fired, count - count / 10) << "victims that were within an operation";
  RecordProperty("fired", static_cast<int>(num_fired));
}

}  // namespace
}  // namespace ddprun
