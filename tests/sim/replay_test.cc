#include "tests/sim/replay.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/plan.h"
#include "tests/sim/world/sim_world.h"

namespace ddprun::sim {
namespace {

// Returns a recording of the first coordinator in the simulation generated from `seed`.
std::string Recorded(uint64_t seed) {
  std::string bytes;
  RunScript(DrawScript(seed), /*print=*/false,
            EncodeRecording([&](const std::string& more) { bytes += more; },
                            [] { FAIL() << "the recording exceeds its maximum size"; }));
  return bytes;
}

absl::StatusOr<ReplayResult> ReplayOf(const std::string& bytes) {
  std::istringstream in(bytes);
  return Replay(in, /*print=*/false);
}

// The seeds cover all kinds of faults, and both placements of the coordinator: on a separate host and in an
// agent's process.
TEST(ReplayTest, SimulatedJobsReplayBitForBit) {
  int64_t steps = 0;
  for (uint64_t seed = 1; seed <= 180; ++seed) {
    if (DrawScript(seed).settings.with_register) continue;  // Coordinators of such jobs are not recorded.
    const absl::StatusOr<ReplayResult> result = ReplayOf(Recorded(seed));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->whole) << seed;
    ASSERT_EQ(result->difference, "") << seed;
    ASSERT_EQ(result->broken, "") << seed;
    steps += result->steps;
  }
  EXPECT_GT(steps, 50'000);
}

TEST(ReplayTest, ReportsADifferentOutcome) {
  std::istringstream in(Recorded(4));
  std::string changed;
  int64_t steps = 0;
  const StepSink encode = EncodeRecording([&](const std::string& more) { changed += more; }, [] {});
  ASSERT_TRUE(Replay(in, false, [&](proto::RecordedStep step) {
                if (++steps == 20) step.set_outcome_crc32(step.outcome_crc32() ^ 1);
                encode(step);
              }).ok());
  const absl::StatusOr<ReplayResult> result = ReplayOf(changed);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->difference, ::testing::StartsWith("step 19 at "));
}

TEST(ReplayTest, ReportsADifferentTime) {
  std::istringstream in(Recorded(4));
  std::string changed;
  const StepSink encode = EncodeRecording([&](const std::string& more) { changed += more; }, [] {});
  ASSERT_TRUE(Replay(in, false, [&](proto::RecordedStep step) {
                step.set_at_ns(step.at_ns() * 2);
                encode(step);
              }).ok());
  const absl::StatusOr<ReplayResult> result = ReplayOf(changed);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE(result->difference, "");
}

TEST(ReplayTest, ReplaysTheCompleteStepsOfATruncatedRecording) {
  const std::string bytes = Recorded(4);
  const absl::StatusOr<ReplayResult> all = ReplayOf(bytes);
  const absl::StatusOr<ReplayResult> part = ReplayOf(bytes.substr(0, bytes.size() - 1));
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_FALSE(part->whole);
  EXPECT_EQ(part->difference, "");
  EXPECT_EQ(part->steps, all->steps - 1);
}

TEST(ReplayTest, RejectsADamagedStep) {
  std::string bytes = Recorded(4);
  // Makes the node id of a join invalid UTF-8 without changing the length of the step.
  const size_t id = bytes.find("n0@host");
  ASSERT_NE(id, std::string::npos);
  bytes[id] = '\xff';
  EXPECT_EQ(ReplayOf(bytes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplayTest, RejectsFilesThatAreNotRecordings) {
  for (const std::string& bytes : {std::string(), std::string("seed 4711\n"), std::string(1000, '\xff')}) {
    EXPECT_EQ(ReplayOf(bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes.size();
  }
}

// tests/sim/recordings contains recordings of real jobs.
TEST(ReplayTest, AllRecordingsReplayWithoutAViolation) {
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator("tests/sim/recordings")) {
    if (file.path().extension() != ".rec") continue;
    std::ifstream in(file.path(), std::ios::binary);
    const absl::StatusOr<ReplayResult> result = Replay(in, /*print=*/false);
    ASSERT_TRUE(result.ok()) << file.path() << ": " << result.status();
    EXPECT_EQ(result->difference, "") << file.path();
    EXPECT_EQ(result->broken, "") << file.path();
    EXPECT_TRUE(result->whole) << file.path();
    EXPECT_GT(result->steps, 0) << file.path();
    ++found;
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace ddprun::sim
