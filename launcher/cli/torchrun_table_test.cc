// Checks docs/torchrun.md: every option and variable has a row, and every row names a test.

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

struct Row {
  int line;
  std::string name;  // without backquotes
  std::string verdict;
  std::string why;
  std::string test;
};

std::string Bare(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&text, "`")) absl::ConsumeSuffix(&text, "`");
  return std::string(text);
}

std::vector<Row> Rows() {
  std::ifstream file("docs/torchrun.md");
  std::vector<Row> rows;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (!absl::StartsWith(text, "| ") || absl::StartsWith(text, "| name |") ||
        absl::StartsWith(text, "| --- |")) {
      continue;
    }
    const std::vector<std::string> cells =
        absl::StrSplit(absl::StrReplaceAll(absl::StripSuffix(text, "|"), {{"| |", "|  |"}}), " | ");
    if (cells.size() != 4) {
      ADD_FAILURE() << "docs/torchrun.md:" << line << ": " << cells.size() << " cells instead of 4";
      continue;
    }
    rows.push_back({line, Bare(absl::StripPrefix(cells[0], "| ")), Bare(cells[1]), Bare(cells[2]),
                    std::string(absl::StripAsciiWhitespace(cells[3]))});
  }
  return rows;
}

std::set<std::string> Names() {
  std::set<std::string> names;
  for (const Row& row : Rows()) {
    for (const absl::string_view name : absl::StrSplit(row.name, "`, `")) names.emplace(name);
  }
  return names;
}

TEST(TorchrunTableTest, HasARowForEveryOption) {
  const std::set<std::string> names = Names();
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_EQ(names.count(absl::StrCat("--", spec.name)), 1) << "--" << spec.name;
  }
}

TEST(TorchrunTableTest, HasARowForEveryVariable) {
  const std::set<std::string> names = Names();
  for (const char* variable :
       {// Read by the launcher.
        "PET_<OPTION>", "PYTHON_EXEC", "OMP_NUM_THREADS", "LOGLEVEL", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
        "TORCHELASTIC_ERROR_FILE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_WORKER_IDENTICAL",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING",
        "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE",
        "TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "USE_LIBUV",
        // Set for workers.
        "LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "LOCAL_WORLD_SIZE",
        "WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_SIGNALS_TO_HANDLE"}) {
    EXPECT_EQ(names.count(variable), 1) << variable;
  }
}

TEST(TorchrunTableTest, HasAVerdictInEachRow) {
  for (const Row& row : Rows()) {
    EXPECT_THAT(row.verdict, testing::AnyOf("same", "better", "not")) << "line " << row.line;
    EXPECT_TRUE(row.verdict == "same" || !row.why.empty())
        << "line " << row.line << ": " << row.name << " is " << row.verdict << " without a reason";
  }
}

// tools/named_tests_test.py checks that these tests exist.
TEST(TorchrunTableTest, NamesATestForEachRow) {
  ASSERT_GE(Rows().size(), 100);
  for (const Row& row : Rows()) {
    EXPECT_TRUE(absl::StartsWith(row.test, "`//"))
        << "docs/torchrun.md:" << row.line << ": " << row.name << ": expected a test, found " << row.test;
  }
}

}  // namespace
}  // namespace ddprun
