#include "launcher/agent/output_plans.h"

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OutputPlansTest : public testing::Test {
 protected:
  OutputPlansTest() {
    std::string dir = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(dir.data()), nullptr);
    files_ = {.dir = dir,
              .workers = {{.stdout_log = "out0"}, {.stdout_log = "out1"}},
              .filtered_stdout_log = dir + "/filtered_stdout.log",
              .filtered_stderr_log = dir + "/filtered_stderr.log"};
    assignment_.first_rank = Rank(6);
  }
  WorkerOutput::Plan Plan(int local_rank) {
    return OutputPlans(config_, assignment_, files_, "n3.example",
                       [this](const absl::Status& s) { warnings_.emplace_back(s.message()); })
        .For(LocalRank(local_rank));
  }

  LaunchConfig config_;
  Assignment assignment_;
  AttemptFiles files_;
  std::vector<std::string> warnings_;
};

TEST_F(OutputPlansTest, ByDefaultEverythingIsShownAndNothingIsKept) {
  const WorkerOutput::Plan plan = Plan(1);
  EXPECT_EQ(plan.redirects, Streams{});
  EXPECT_EQ(plan.tee, Streams{});
  EXPECT_TRUE(plan.shown);
  EXPECT_EQ(plan.files.stdout_log, "out1");
  EXPECT_EQ(plan.prefix, "[default1]:");
  EXPECT_EQ(plan.max_log_bytes, 0);
  EXPECT_EQ(plan.filtered_stdout, nullptr);
  EXPECT_FALSE(std::filesystem::exists(files_.filtered_stdout_log));
}

TEST_F(OutputPlansTest, StreamsAreChosenByLocalRank) {
  config_.redirects = *StreamChoice::Parse("0:3");
  config_.tee = *StreamChoice::Parse("1:2");
  EXPECT_EQ(Plan(0).redirects, (Streams{.out = true, .err = true}));
  EXPECT_EQ(Plan(0).tee, Streams{});
  EXPECT_EQ(Plan(1).redirects, Streams{});
  EXPECT_EQ(Plan(1).tee, (Streams{.out = false, .err = true}));
}

TEST_F(OutputPlansTest, ThePrefixHasTheGlobalRankAndTheHost) {
  config_.role = "trainer";
  config_.line_prefix_template = "${hostname}:$rank/${local_rank} ${role_name}${no} $$";
  EXPECT_EQ(Plan(1).prefix, "n3.example:7/1 trainer${no} $");
}

TEST_F(OutputPlansTest, OnlyTheRanksOfTheFilterAreShown) {
  config_.console_ranks = {1, 5};
  EXPECT_FALSE(Plan(0).shown);
  EXPECT_TRUE(Plan(1).shown);
}

TEST_F(OutputPlansTest, FiltersHaveAFileForEachStreamOfAllWorkers) {
  config_.stdout_filters = {"apple"};
  config_.max_log_bytes = 1 << 20;
  EXPECT_EQ(Plan(0).max_log_bytes, 1 << 20);
  EXPECT_NE(Plan(0).filtered_stdout, nullptr);
  EXPECT_EQ(Plan(0).filtered_stderr, nullptr);
  EXPECT_TRUE(std::filesystem::exists(files_.filtered_stdout_log)) << "also when no line matches";
  EXPECT_FALSE(std::filesystem::exists(files_.filtered_stderr_log));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(OutputPlansTest, ManyWorkersLeaveRoomForThePipesOfOthers) {
  for (const int workers : {1, 32, 33, 500}) {
    config_.num_local_workers = workers;
    const int64_t all = int64_t{2} * workers * Plan(0).pipe_bytes;
    EXPECT_LE(all, 16 << 20) << workers;
    EXPECT_EQ(all > 0, workers <= 32) << workers;
  }
}

TEST_F(OutputPlansTest, WithoutFilesOrWhereTheyCannotBeOpenedNothingIsFiltered) {
  config_.stdout_filters = {"apple"};
  files_.filtered_stdout_log = "";
  EXPECT_EQ(Plan(0).filtered_stdout, nullptr);
  EXPECT_THAT(warnings_, IsEmpty());
  files_.filtered_stdout_log = "/no/such/filtered_stdout.log";
  EXPECT_EQ(Plan(0).filtered_stdout, nullptr);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/no/such/filtered_stdout.log")));
}

}  // namespace
}  // namespace ddprun
