#include "launcher/agent/failure_display.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What `f` writes to stderr.
template <typename F>
std::string Shown(F f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class FailureDisplayTest : public ::testing::Test {
 protected:
  FailureDisplayTest() { std::filesystem::create_directories(dir_); }

  const std::string dir_ = absl::StrCat(testing::TempDir(), "/attempt_0");
  const AgentLog log_{"node1", ""};
  FailureDisplay display_{&log_, "train.py"};
  const std::vector<FailureRecord> failures_ = {{.rank = Rank(0),
                                                 .local_rank = LocalRank(0),
                                                 .host = "node1.example",
                                                 .pid = 77,
                                                 .exit = Exited{3},
                                                 .timestamp = 1,
                                                 .message = "To enable traceback see: URL",
                                                 .error_file = "",
                                                 .stderr_tail = "no cheese\n"}};
  const JobPage page_ = {.round = Round(2),
                         .groups = {{.first = {.rank = Rank(0),
                                               .local_rank = LocalRank(0),
                                               .host = "node1",
                                               .pid = 77,
                                               .exit_code = 3,
                                               .stderr_tail = "no cheese"},
                                     .ranks = {0}}},
                         .outcome = "restart 1 of 3"};
};

TEST_F(FailureDisplayTest, OneNodeIsToldOnlyWhatIsNew) {
  display_.BeginRound(Round(2), false, dir_);
  EXPECT_THAT(Shown([&] { display_.ShowNode(failures_); }),
              AllOf(HasSubstr("train.py FAILED"), HasSubstr("exitcode  : 3"), Not(HasSubstr("no cheese"))));
  const std::string shown = Shown([&] { display_.ShowJob(page_); });
  EXPECT_THAT(shown,
              AllOf(HasSubstr("no cheese"), HasSubstr("restart 1 of 3"), Not(HasSubstr("node1.example")),
                    HasSubstr(absl::StrCat("is also in ", dir_, "/failure_report.txt"))));
  EXPECT_THAT(shown, Not(HasSubstr(FormatJobPage(page_))));
  EXPECT_EQ(Content(dir_ + "/failure_report.txt"), FormatJobPage(page_));
  EXPECT_THAT(Shown([&] { display_.SettleDebts(); }), IsEmpty());
}

TEST_F(FailureDisplayTest, ManyNodesAreToldThePage) {
  display_.BeginRound(Round(2), true, "");
  display_.BeginRound(Round(2), true, "");
  Shown([&] { display_.ShowNode(failures_); });
  EXPECT_EQ(Shown([&] { display_.ShowJob(page_); }), FormatJobPage(page_));
}

TEST_F(FailureDisplayTest, ANodeWithoutFailuresIsToldThePage) {
  display_.BeginRound(Round(2), true, "");
  EXPECT_EQ(Shown([&] { display_.ShowJob(page_); }), FormatJobPage(page_));
}

TEST_F(FailureDisplayTest, ALostNodeIsNewsToo) {
  JobPage page = page_;
  page.lost_nodes = {"node3: its lease expired"};
  display_.BeginRound(Round(2), false, "");
  Shown([&] { display_.ShowNode(failures_); });
  EXPECT_EQ(Shown([&] { display_.ShowJob(page); }), FormatJobPage(page));
}

TEST_F(FailureDisplayTest, WithoutAPageTheLastLinesAreShown) {
  display_.BeginRound(Round(2), false, "");
  Shown([&] { display_.ShowNode(failures_); });
  EXPECT_THAT(Shown([&] { display_.SettleDebts(); }), HasSubstr("no cheese"));
  EXPECT_THAT(Shown([&] { display_.SettleDebts(); }), IsEmpty());
}

TEST_F(FailureDisplayTest, APageThatCannotBeLeftIsSaidSo) {
  display_.BeginRound(Round(2), true, dir_ + "/missing");
  EXPECT_THAT(
      Shown([&] { display_.ShowJob(page_); }),
      AllOf(HasSubstr(FormatJobPage(page_)), HasSubstr("cannot be written"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace ddprun
