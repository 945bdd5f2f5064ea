#include "launcher/agent/start_files.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Property;

LogLayout Layout(const std::string& base) { return *LogLayout::Create(base, "job"); }
auto Says(const std::string& text) { return Property(&absl::Status::message, HasSubstr(text)); }

TEST(StartFilesTest, FiltersHaveAFileForEachStreamOfAllWorkers) {
  LogLayout layout = Layout(testing::TempDir());
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(2)};
  files.Open(layout);
  EXPECT_NE(files.filtered_stdout, nullptr);
  EXPECT_EQ(files.filtered_stderr, nullptr);
  EXPECT_EQ(files.opened.size(), 2u);
  EXPECT_EQ(files.plans[1].files.error_json, layout.run_dir() + "/attempt_0/1/error.json");
  EXPECT_TRUE(std::filesystem::exists(layout.run_dir() + "/attempt_0/filtered_stdout.log"))
      << "also when no line matches";
  EXPECT_FALSE(std::filesystem::exists(layout.run_dir() + "/attempt_0/filtered_stderr.log"));
  EXPECT_THAT(files.problems, IsEmpty());
}

TEST(StartFilesTest, WithoutLogsThereAreNone) {
  LogLayout layout = Layout("/dev/null");
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.plans[0].redirects = {.out = true, .err = true};
  files.Open(layout);
  EXPECT_EQ(files.filtered_stdout, nullptr);
  EXPECT_FALSE(files.opened[0].out.of_worker);
  EXPECT_THAT(files.problems, IsEmpty());
}

TEST(StartFilesTest, WhereTheDirectoriesCannotBeMadeTheStartGoesOnWithoutFiles) {
  LogLayout layout = Layout(testing::TempDir());
  std::filesystem::remove_all(layout.run_dir());
  std::filesystem::create_symlink("/no/such/place", layout.run_dir());
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.Open(layout);
  EXPECT_EQ(files.opened.size(), 1u);
  EXPECT_EQ(files.plans[0].files.error_json, "");
  EXPECT_THAT(files.problems, ElementsAre(Says("going on without them")));
}

TEST(StartFilesTest, AFilteredFileThatCannotBeOpenedIsDoneWithout) {
  LogLayout layout = Layout(testing::TempDir());
  std::filesystem::create_directories(layout.run_dir() + "/attempt_0/filtered_stdout.log");
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.Open(layout);
  EXPECT_EQ(files.filtered_stdout, nullptr);
  EXPECT_THAT(files.problems, ElementsAre(Says("filtered_stdout.log")));
}

}  // namespace
}  // namespace ddprun
