#include "launcher/workers/output_plans.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

class OutputPlansTest : public testing::Test {
 protected:
  OutputPlansTest() {
    config_.num_local_workers = 2;
    assignment_.first_rank = Rank(6);
  }
  WorkerOutput::Plan Plan(int local_rank) {
    return OutputPlans(config_, assignment_, "n3.example").For(LocalRank(local_rank));
  }

  LaunchConfig config_;
  Assignment assignment_;
};

TEST_F(OutputPlansTest, ShowsAllOutputAndWritesNoFilesByDefault) {
  const WorkerOutput::Plan plan = Plan(1);
  EXPECT_EQ(plan.redirects, Streams{});
  EXPECT_EQ(plan.tee, Streams{});
  EXPECT_TRUE(plan.shown);
  EXPECT_FALSE(plan.alone);
  EXPECT_EQ(plan.prefix, "[default1]:");
  EXPECT_EQ(plan.max_log_bytes, 0);
}

TEST_F(OutputPlansTest, StreamsAreChosenByLocalRank) {
  config_.redirects = *StreamChoice::Parse("0:3");
  config_.tee = *StreamChoice::Parse("1:2");
  EXPECT_EQ(Plan(0).redirects, (Streams{.out = true, .err = true}));
  EXPECT_EQ(Plan(0).tee, Streams{});
  EXPECT_EQ(Plan(1).redirects, Streams{});
  EXPECT_EQ(Plan(1).tee, (Streams{.out = false, .err = true}));
}

TEST_F(OutputPlansTest, ThePrefixContainsTheGlobalRankAndTheHost) {
  config_.role = "trainer";
  config_.line_prefix_template = "${hostname}:$rank/${local_rank} ${role_name}${no} $$";
  EXPECT_EQ(Plan(1).prefix, "n3.example:7/1 trainer${no} $");
}

TEST_F(OutputPlansTest, ShowsOnlyTheConsoleRanks) {
  config_.console_ranks = {1, 5};
  EXPECT_FALSE(Plan(0).shown);
  EXPECT_TRUE(Plan(1).shown);
  EXPECT_TRUE(Plan(1).alone);
}

TEST_F(OutputPlansTest, ASingleWorkerIsAloneOnTheConsole) {
  config_.num_local_workers = 1;
  config_.max_log_bytes = 1 << 20;
  EXPECT_TRUE(Plan(0).alone);
  EXPECT_EQ(Plan(0).max_log_bytes, 1 << 20);
}

TEST_F(OutputPlansTest, LimitsTheTotalSizeOfPipes) {
  for (const int workers : {1, 32, 33, 500}) {
    config_.num_local_workers = workers;
    const int64_t all = int64_t{2} * workers * Plan(0).pipe_bytes;
    SCOPED_TRACE(workers);
    EXPECT_LE(all, 16 << 20);
    EXPECT_EQ(all > 0, workers <= 32);
  }
}

}  // namespace

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Property;

LogLayout Layout(const std::string& base) { return *LogLayout::Create(base, "job"); }
auto HasMessage(const std::string& text) { return Property(&absl::Status::message, HasSubstr(text)); }

TEST(StartFilesTest, OpensOneFilteredFilePerStreamForAllWorkers) {
  LogLayout layout = Layout(testing::TempDir());
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(2)};
  files.Open(layout);
  EXPECT_NE(files.filtered_stdout, nullptr);
  EXPECT_EQ(files.filtered_stderr, nullptr);
  EXPECT_EQ(files.opened.size(), 2u);
  EXPECT_EQ(files.plans[1].files.error_json, layout.run_dir() + "/attempt_0/1/error.json");
  EXPECT_TRUE(std::filesystem::exists(layout.run_dir() + "/attempt_0/filtered_stdout.log"))
      << "the file must exist even if no line matches";
  EXPECT_FALSE(std::filesystem::exists(layout.run_dir() + "/attempt_0/filtered_stderr.log"));
  EXPECT_THAT(files.problems, IsEmpty());
}

TEST(StartFilesTest, OpensNoFilesWithoutALogDirectory) {
  LogLayout layout = Layout("/dev/null");
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.plans[0].redirects = {.out = true, .err = true};
  files.Open(layout);
  EXPECT_EQ(files.filtered_stdout, nullptr);
  EXPECT_FALSE(files.opened[0].out.of_worker);
  EXPECT_THAT(files.problems, IsEmpty());
}

TEST(StartFilesTest, ContinuesWithoutFilesIfTheirDirectoriesCannotBeCreated) {
  LogLayout layout = Layout(testing::TempDir());
  std::filesystem::remove_all(layout.run_dir());
  std::filesystem::create_symlink("/no/such/place", layout.run_dir());
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.Open(layout);
  EXPECT_EQ(files.opened.size(), 1u);
  EXPECT_EQ(files.plans[0].files.error_json, "");
  EXPECT_THAT(files.problems, ElementsAre(HasMessage("continuing without them")));
}

TEST(StartFilesTest, ContinuesWithoutAFilteredFileThatCannotBeOpened) {
  LogLayout layout = Layout(testing::TempDir());
  std::filesystem::create_directories(layout.run_dir() + "/attempt_0/filtered_stdout.log");
  StartFiles files{.filters_stdout = true, .plans = std::vector<WorkerOutput::Plan>(1)};
  files.Open(layout);
  EXPECT_EQ(files.filtered_stdout, nullptr);
  EXPECT_THAT(files.problems, ElementsAre(HasMessage("filtered_stdout.log")));
}

}  // namespace

}  // namespace ddprun
