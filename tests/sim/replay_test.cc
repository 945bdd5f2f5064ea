#include "tests/sim/replay.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <list>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/plan.h"
#include "tests/sim/world/sim_world.h"

namespace ddprun::sim {
namespace {

// Returns recordings of all coordinators in the simulation generated from `seed`.
std::vector<std::string> AllRecorded(uint64_t seed) {
  std::list<std::string> recordings;
  RunScript(DrawScript(seed), /*print=*/false, [&recordings] {
    std::string* const bytes = &recordings.emplace_back();
    return EncodeRecording([bytes](const std::string& more) { *bytes += more; },
                           [] { FAIL() << "the recording exceeds its maximum size"; });
  });
  return {recordings.begin(), recordings.end()};
}

// Returns the recording of the first coordinator.
std::string Recorded(uint64_t seed) { return AllRecorded(seed).at(0); }

absl::StatusOr<ReplayResult> ReplayOf(const std::string& bytes) {
  std::istringstream in(bytes);
  return Replay(in, /*print=*/false);
}

// The seeds cover all kinds of faults, and both placements of the coordinator: on a separate host and in an
// agent's process.
TEST(ReplayTest, SimulatedJobsReplayBitForBit) {
  int64_t steps = 0, registered_steps = 0;
  for (uint64_t seed = 1; seed <= 180; ++seed) {
    const bool registered = DrawScript(seed).settings.with_register;
    for (const std::string& recording : AllRecorded(seed)) {
      const absl::StatusOr<ReplayResult> result = ReplayOf(recording);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->whole) << seed;
      ASSERT_EQ(result->difference, "") << seed;
      ASSERT_EQ(result->broken, "") << seed;
      (registered ? registered_steps : steps) += result->steps;
    }
  }
  EXPECT_GT(steps, 50'000);
  EXPECT_GT(registered_steps, 10'000);
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

// Each kind of step of a coordinator with a register, and each answer that it reads, changes later outcomes.
TEST(ReplayTest, ReportsADifferentStepOfALead) {
  using Step = proto::RecordedStep;
  const std::vector<std::pair<std::string, std::function<bool(Step&)>>> changes = {
      {"charter",
       [](Step& step) {
         std::string* const charter = step.mutable_lead_begun()->mutable_charter();
         const size_t at = charter->find("\"round\":");
         if (at == std::string::npos) return false;
         charter->insert(at + 9 + (charter->at(at + 9) == '"'), "7");
         return true;
       }},
      {"written", [](Step& step) { return step.has_charter_written() && (step.mutable_tick(), true); }},
      {"left",
       [](Step& step) {
         if (step.has_lead_left_ms()) step.set_lead_left_ms(step.lead_left_ms() + 1);
         return step.has_lead_left_ms();
       }},
      {"start",
       [](Step& step) {
         if (step.has_start_additions()) step.mutable_start_additions()->set_epoch(77);
         return step.has_start_additions();
       }},
  };
  std::set<std::string> tried;
  for (uint64_t seed = 1; seed <= 60 && tried.size() < changes.size(); ++seed) {
    if (!DrawScript(seed).settings.with_register) continue;
    for (const std::string& recording : AllRecorded(seed)) {
      for (const auto& [name, change] : changes) {
        std::string changed;
        bool done = false;
        const StepSink encode = EncodeRecording([&](const std::string& more) { changed += more; }, [] {});
        std::istringstream in(recording);
        ASSERT_TRUE(Replay(in, false, [&](Step step) {
                      if (name == "charter" && !step.lead_begun().has_charter()) return encode(step);
                      done = done || change(step);
                      encode(step);
                    }).ok());
        if (!done) continue;
        const absl::StatusOr<ReplayResult> result = ReplayOf(changed);
        EXPECT_TRUE(!result.ok() || !result->difference.empty()) << name << ", seed " << seed;
        tried.insert(name);
      }
    }
  }
  EXPECT_EQ(tried.size(), changes.size());
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
