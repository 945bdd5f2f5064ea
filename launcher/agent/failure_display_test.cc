#include "launcher/agent/failure_display.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/report/failure_page.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class FailureDisplayTest : public ::testing::Test {
 protected:
  FailureDisplayTest() { std::filesystem::create_directories(dir_); }

  // Returns the output on stderr.
  std::string Show() {
    testing::internal::CaptureStderr();
    display_.Show("node1.example");
    return testing::internal::GetCapturedStderr();
  }
  std::string ShowAll() {
    testing::internal::CaptureStderr();
    display_.ShowAll("node1.example");
    return testing::internal::GetCapturedStderr();
  }

  const std::string dir_ = absl::StrCat(testing::TempDir(), "/attempt_0");
  const AgentLog log_{"node1", ""};
  FailureDisplay display_{&log_, "train.py", [](const std::string& path, const std::string& text, auto done) {
                            std::ofstream file(path);
                            file << text << std::flush;
                            done(file ? absl::OkStatus() : absl::ErrnoToStatus(errno, path));
                          }};
  const std::vector<FailureRecord> failures_ = {{.failure = {.rank = Rank(0),
                                                             .local_rank = LocalRank(0),
                                                             .host = "node1",
                                                             .pid = 77,
                                                             .exit = Exited{3},
                                                             .stderr_tail = "no cheese\n"},
                                                 .timestamp = 1,
                                                 .message = "To enable traceback see: URL"}};
  const JobReport page_ = {.round = Round(2),
                           .groups = {{.first = {.rank = Rank(0),
                                                 .local_rank = LocalRank(0),
                                                 .host = "node1",
                                                 .pid = 77,
                                                 .exit = Exited{3},
                                                 .stderr_tail = "no cheese"},
                                       .ranks = {Rank(0)}}},
                           .outcome = "restart 1 of 3"};
};

TEST_F(FailureDisplayTest, ASingleNodeShowsOnlyNewPartsOfThePage) {
  display_.BeginRound(Round(2), false, dir_);
  display_.KeepNode(failures_);
  EXPECT_THAT(Show(), AllOf(HasSubstr("train.py FAILED"), HasSubstr("exitcode  : 3"),
                            HasSubstr("host      : node1.example"), Not(HasSubstr("no cheese"))));
  display_.KeepJob(page_);
  const std::string shown = Show();
  EXPECT_THAT(shown, AllOf(HasSubstr("no cheese"), HasSubstr("restart 1 of 3"), Not(HasSubstr("FAILED")),
                           HasSubstr(absl::StrCat("is also in ", dir_, "/failure_report.txt"))));
  EXPECT_THAT(shown, Not(HasSubstr(FormatFailurePage(page_))));
  EXPECT_EQ(Content(dir_ + "/failure_report.txt"), FormatFailurePage(page_));
  EXPECT_THAT(ShowAll(), IsEmpty());
}

TEST_F(FailureDisplayTest, KeptReportsBelongToTheirRound) {
  display_.BeginRound(Round(2), false, dir_);
  display_.KeepNode(failures_);
  display_.KeepJob(page_);
  display_.BeginRound(Round(3), true, "/nowhere");  // The next round has started.
  EXPECT_FALSE(display_.empty());
  EXPECT_THAT(Show(), AllOf(HasSubstr("train.py FAILED"), HasSubstr("no cheese"), HasSubstr(dir_)));
  EXPECT_TRUE(display_.empty());
}

TEST_F(FailureDisplayTest, SeveralNodesShowTheWholePage) {
  display_.BeginRound(Round(2), true, "");
  display_.KeepNode(failures_);
  Show();
  display_.KeepJob(page_);
  EXPECT_EQ(Show(), FormatFailurePage(page_));
}

TEST_F(FailureDisplayTest, ANodeWithoutFailuresShowsTheWholePage) {
  display_.BeginRound(Round(2), false, "");
  display_.KeepJob(page_);
  EXPECT_EQ(Show(), FormatFailurePage(page_));
}

TEST_F(FailureDisplayTest, ALostNodeShowsTheWholePage) {
  JobReport page = page_;
  page.lost_nodes = {"node3: its lease expired"};
  display_.BeginRound(Round(2), false, "");
  display_.KeepNode(failures_);
  Show();
  display_.KeepJob(page);
  EXPECT_EQ(Show(), FormatFailurePage(page));
}

TEST_F(FailureDisplayTest, ShowsStderrIfNoPageFollows) {
  display_.BeginRound(Round(2), false, "");
  display_.KeepNode(failures_);
  EXPECT_THAT(ShowAll(), AllOf(HasSubstr("train.py FAILED"), HasSubstr("no cheese")));
  EXPECT_THAT(ShowAll(), IsEmpty());
}

TEST_F(FailureDisplayTest, LogsThatThePageCannotBeWritten) {
  display_.BeginRound(Round(2), true, dir_ + "/missing");
  display_.KeepJob(page_);
  EXPECT_THAT(Show(), AllOf(HasSubstr(FormatFailurePage(page_)), HasSubstr("cannot be written"),
                            HasSubstr("No such file")));
}

}  // namespace
}  // namespace ddprun
