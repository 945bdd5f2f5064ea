// Tests that each golden trace equals the trace of its script, and that collecting the details of a trace
// does not change the run.

#include "tests/sim/golden.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/world/sim_world.h"

namespace ddprun::sim {
namespace {

Golden Read(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  absl::StatusOr<Golden> golden = ParseGolden(text.str());
  EXPECT_TRUE(golden.ok()) << path << ": " << golden.status();
  return golden.ok() ? *std::move(golden) : Golden();
}

std::set<std::filesystem::path> Files() {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/sim/golden"))
    files.insert(entry.path());
  return files;
}

TEST(GoldenTest, EveryTraceMatchesItsFile) {
  for (const auto& path : Files()) {
    const Golden golden = Read(path);
    EXPECT_EQ(LineDiff(golden.expected, GoldenTrace(golden.script)), "")
        << path << "; if the change is intended, run tools/dev sim --golden=update";
  }
  EXPECT_EQ(Files().size(), 11u);
}

TEST(GoldenTest, NoScriptBreaksARuleAndEveryFaultTakesEffect) {
  for (const auto& path : Files()) {
    const Golden golden = Read(path);
    const SimResult result = RunScript(golden.script, /*print=*/false);
    EXPECT_EQ(result.broken, "") << path;
    size_t fired = 0;
    for (const auto& [kind, count] : result.fired) fired += count;
    EXPECT_EQ(fired, golden.script.faults.size()) << path;
  }
}

TEST(GoldenTest, CollectingDetailsDoesNotChangeTheRun) {
  for (const auto& path : Files()) {
    const Golden golden = Read(path);
    int lines = 0;
    const SimResult detailed = TellScript(golden.script, [&lines](TimePoint, absl::string_view) { ++lines; });
    const SimResult silent = RunScript(golden.script, /*print=*/false);
    EXPECT_EQ(detailed.trace_hash, silent.trace_hash) << path;
    EXPECT_EQ(detailed.events, silent.events) << path;
    EXPECT_GT(lines, 20) << path;
  }
}

TEST(LineDiffTest, ShowsDifferencesWithTwoLinesOfContext) {
  EXPECT_EQ(LineDiff("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(LineDiff("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nx\n5\n6\n7\n"), "  2\n  3\n- 4\n+ x\n  5\n  6\n");
  EXPECT_EQ(LineDiff("a\n", "a\nb\n"), "  a\n+ b\n");
  EXPECT_EQ(LineDiff("a\n", "a"), "only the final newline differs\n");
}

TEST(ParseGoldenTest, RequiresASeparatorBetweenScriptAndTrace) {
  EXPECT_EQ(ParseGolden("seed 1\n").status().message(), "there is no line \"----\"");
  const absl::StatusOr<Golden> golden = ParseGolden("# A comment.\nseed 7\n----\n  0.000  x\n");
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(golden->script.settings.seed, 7u);
  EXPECT_EQ(golden->expected, "  0.000  x\n");
  EXPECT_EQ(ToString(*golden), "# A comment.\nseed 7\n----\n  0.000  x\n");
}

}  // namespace
}  // namespace ddprun::sim
