#include "launcher/report/failure_page.h"

#include <chrono>
#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Rank> Ranks(const std::vector<int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

Failure PythonFailure() {
  return {.rank = Rank(5),
          .local_rank = LocalRank(1),
          .host = "node17",
          .pid = 4711,
          .exit = Exited{1},
          .cause = "rank 5 on node17: exit code 1",
          .exception = "ValueError: bad batch",
          .stderr_tail =
              "step 480: loss 2.5\n"
              "Traceback (most recent call last):\n"
              "  File \"/job/train.py\", line 4, in <module>\n"
              "    load(3)\n"
              "ValueError: bad batch\n",
          .uptime = milliseconds(12'340),
          .step = 480};
}

Failure AfterEffect(int rank) {
  return {
      .rank = Rank(rank),
      .local_rank = LocalRank(0),
      .host = "node18",
      .pid = 99,
      .exit = Signaled{SIGABRT, true},
      .origin = FailureOrigin::kFollowsAnother,
      .exception = "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]",
      .stderr_tail = "is not shown\n",
      .uptime = milliseconds(12'400),
      .step = 480};
}

TEST(FailurePageTest, ShowsTheCauseAndEqualFailuresAndAfterEffects) {
  JobReport page = {.round = Round(3),
                    .groups = {{.first = PythonFailure(), .count = 7, .ranks = Ranks({1, 2, 3, 5, 8, 9, 12})},
                               {.first = AfterEffect(7), .count = 2, .ranks = Ranks({6, 7})}},
                    .more_failures = 1,
                    .lost_nodes = {"node3: its lease expired 1.2 s ago"},
                    .outcome = "restart 1 of 3"};
  EXPECT_EQ(
      FormatFailurePage(page),
      R"(====================================================================================================
Round 3 ended: rank 5 on node17 failed first
----------------------------------------------------------------------------------------------------
rank 5 (local rank 1) on node17: exit code 1 after 12.3 s, at step 480
  ValueError: bad batch
  6 more ranks failed the same way: 1-3, 8, 9, 12
  last lines of its stderr:
    | step 480: loss 2.5
    | Traceback (most recent call last):
    |   File "/job/train.py", line 4, in <module>
    |     load(3)
    | ValueError: bad batch
----------------------------------------------------------------------------------------------------
Also failed:
rank 7 (local rank 0) on node18: SIGABRT after 12.4 s, at step 480
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]
  an after-effect of another failure, according to its error
  1 more rank failed the same way: 6
and 1 more failure
----------------------------------------------------------------------------------------------------
Nodes that left or were lost:
  node3: its lease expired 1.2 s ago
----------------------------------------------------------------------------------------------------
Next: restart 1 of 3
====================================================================================================
)");
}

TEST(FailurePageTest, ShowsEvidenceFromTheSystem) {
  Failure killed = {
      .rank = Rank(0),
      .local_rank = LocalRank(0),
      .host = "node1",
      .pid = 12,
      .exit = Signaled{SIGKILL, false},
      .evidence = {"the kernel's OOM killer killed process 12 (python3), which used 3.9 GiB: out of "
                   "memory in control group /job (memory limit 4.0 GiB)"},
      .uptime = std::chrono::minutes(125)};
  EXPECT_EQ(
      FormatFailurePage({.round = Round(0),
                         .groups = {{.first = killed, .ranks = Ranks({0})}},
                         .outcome = "no restart is left"}),
      R"(====================================================================================================
Round 0 ended: rank 0 on node1 failed
----------------------------------------------------------------------------------------------------
rank 0 (local rank 0) on node1: SIGKILL after 2 h 5 min
  evidence: the kernel's OOM killer killed process 12 (python3), which used 3.9 GiB: out of memory
    in control group /job (memory limit 4.0 GiB)
----------------------------------------------------------------------------------------------------
Next: no restart is left
====================================================================================================
)");
}

TEST(FailurePageTest, MarksTheLastLinesBeforeSigkillAsNotNecessarilyTheCause) {
  const Failure killed = {.rank = Rank(0),
                          .local_rank = LocalRank(0),
                          .host = "node1",
                          .pid = 12,
                          .exit = Signaled{SIGKILL, false},
                          .stderr_tail = "KeyError: 'handled'\n"};
  const std::string text = FormatFailurePage({.groups = {{.first = killed, .ranks = Ranks({0})}}});
  EXPECT_THAT(text, HasSubstr("  last lines of its stderr before SIGKILL, not necessarily the cause:\n"
                              "    | KeyError: 'handled'\n"));
}

TEST(FailurePageTest, LabelsTheLastLinesOfBothStreamsAsOutput) {
  const Failure failed = {.rank = Rank(0),
                          .local_rank = LocalRank(0),
                          .host = "node1",
                          .pid = 12,
                          .exit = Exited{1},
                          .stderr_tail = "step 3\nsomething else\n",
                          .tail_has_stdout = true};
  const std::string text = FormatFailurePage({.groups = {{.first = failed, .ranks = Ranks({0})}}});
  EXPECT_THAT(text, HasSubstr("  last lines of its output:\n    | step 3\n"));
}

TEST(FailurePageTest, DoesNotWrapSourceLocations) {
  const std::string location =
      absl::StrCat("  File \"/a path/", std::string(150, 'p'), "/train.py\", line 4, in <module>");
  Failure failure = PythonFailure();
  failure.stderr_tail = absl::StrCat("Traceback (most recent call last):\n", location, "\n    load(3)\n");
  EXPECT_THAT(FormatFailurePage({.groups = {{.first = failure, .ranks = Ranks({5})}}}),
              HasSubstr(absl::StrCat("    | ", location, "\n    |     load(3)\n")));
}

TEST(FailurePageTest, ShowsWhyAWorkerNeverStarted) {
  const Failure never = {.rank = Rank(2),
                         .local_rank = LocalRank(2),
                         .host = "node1",
                         .exit = NeverStarted{absl::NotFoundError("no such file")},
                         .cause = "rank 2 on node1: never started: cannot start ./x: no such file"};
  const std::string text = FormatFailurePage({.groups = {{.first = never, .ranks = Ranks({2})}}});
  EXPECT_THAT(text, HasSubstr("rank 2 (local rank 2) on node1: never started\n"
                              "  rank 2 on node1: never started: cannot start ./x: no such file\n"));
}

TEST(FailurePageTest, ShowsLostNodesWithoutFailures) {
  EXPECT_EQ(
      FormatFailurePage({.round = Round(8),
                         .lost_nodes = {"node3: its connection was reset", "node4: its lease expired"},
                         .outcome = "waiting for node3, node4"}),
      R"(====================================================================================================
Round 8 ended: 2 nodes lost
----------------------------------------------------------------------------------------------------
Nodes that left or were lost:
  node3: its connection was reset
  node4: its lease expired
----------------------------------------------------------------------------------------------------
Next: waiting for node3, node4
====================================================================================================
)");
}

TEST(FailurePageTest, ALostNodeIsTheCauseIfAllFailuresAreAfterEffects) {
  const std::string text =
      FormatFailurePage({.round = Round(8),
                         .groups = {{.first = AfterEffect(4), .count = 3, .ranks = Ranks({4, 5, 6})}},
                         .lost_nodes = {"node3: its connection was reset"}});
  EXPECT_THAT(text, HasSubstr("Round 8 ended: 1 node lost\n"));
  EXPECT_LT(text.find("node3: its"), text.find("rank 4 "));
}

TEST(FailurePageTest, ShowsStderrOfOtherFailuresOnlyIfTheyHaveNoException) {
  Failure silent = PythonFailure();
  silent.exception.clear();
  silent.stderr_tail = "1\n2\n3\n4\n5\n6\n7\n";
  Failure other = PythonFailure();
  other.stderr_tail = "is not shown\n";
  const std::string text = FormatFailurePage(
      {.groups = {
           {.first = PythonFailure()}, {.first = silent}, {.first = other}, {.first = AfterEffect(1)}}});
  EXPECT_THAT(text,
              HasSubstr("last lines of its stderr:\n    | 3\n    | 4\n    | 5\n    | 6\n    | 7\nrank 5"));
  EXPECT_THAT(text, Not(HasSubstr("is not shown")));
}

TEST(FailurePageTest, IsAtMost100CodePointsWideForAnyOutput) {
  Failure wild = PythonFailure();
  wild.host = std::string(200, 'h');
  wild.exception = absl::StrCat("E: ", std::string(399, 'e'), "\x1b[31m\a\r\n");
  wild.stderr_tail = absl::StrCat(std::string(5000, 'x'), "\n\x1b[2J\x1b[Hé\xff\n", std::string(98, '-'),
                                  "\n", std::string(2000, ' '), "y\n");
  wild.evidence = {std::string(300, 'v')};
  const JobReport page = {.groups = {{.first = wild, .count = 1000, .ranks = Ranks({1, 3, 5, 7, 9, 11})}},
                          .lost_nodes = {std::string(300, 'n')},
                          .outcome = std::string(300, 'o')};
  for (const std::string& text : {FormatFailurePage(page), FormatWhatIsNew(page, "")}) {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      size_t width = 0;
      for (const char c : line) {
        width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        EXPECT_TRUE(static_cast<unsigned char>(c) >= ' ' && c != '\x7f') << line;
      }
      EXPECT_LE(width, 100u) << line;
      EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
    }
  }
  EXPECT_THAT(FormatFailurePage(page),
              HasSubstr("999 more ranks failed the same way: 1, 3, 7, 9, 11, ...\n"));
}

constexpr char kShown[] = R"(
============================================================
train.py FAILED
  exitcode  : 1 (pid: 4711)
  traceback : Traceback (most recent call last):
      File "/job/train.py", line 4, in <module>
        load(3)
    ValueError: bad batch
============================================================
)";

TEST(WhatIsNewTest, DoesNotRepeatWhatIsShown) {
  Failure failure = PythonFailure();
  failure.stderr_tail = failure.stderr_tail.substr(failure.stderr_tail.find("Trace"));
  const JobReport page = {.groups = {{.first = failure, .ranks = Ranks({5})}},
                          .outcome = "no restart is left"};
  EXPECT_EQ(FormatWhatIsNew(page, kShown), R"(rank 5 (local rank 1) on node17 ended after 12.3 s, at step 480
Next: no restart is left
)");
}

TEST(WhatIsNewTest, AddsWhatIsNotShown) {
  Failure failure = PythonFailure();
  failure.exception = "ValueError: bad batch, from KeyError: 'loss'";
  failure.evidence = {"a finding from the system"};
  EXPECT_EQ(FormatWhatIsNew({.groups = {{.first = failure, .ranks = Ranks({5})}}}, kShown),
            R"(rank 5 (local rank 1) on node17 ended after 12.3 s, at step 480
  ValueError: bad batch, from KeyError: 'loss'
  evidence: a finding from the system
  last lines of its stderr:
    | step 480: loss 2.5
    | Traceback (most recent call last):
    |   File "/job/train.py", line 4, in <module>
    |     load(3)
    | ValueError: bad batch
)");
  EXPECT_THAT(FormatWhatIsNew({.groups = {{.first = failure}}}, absl::StrCat(kShown, "\nKeyError: 'loss'\n")),
              Not(HasSubstr("from KeyError")))
      << "an exception chain that is already shown must not be repeated";
}

TEST(FailurePageTest, FormatsRangesOfRanks) {
  EXPECT_EQ(FormatRanks(Ranks({})), "");
  EXPECT_EQ(FormatRanks(Ranks({4})), "4");
  EXPECT_EQ(FormatRanks(Ranks({4, 5})), "4, 5");
  EXPECT_EQ(FormatRanks(Ranks({1, 2, 3, 5, 8, 9})), "1-3, 5, 8, 9");
  EXPECT_EQ(FormatRanks(Ranks({0, 1, 2, 3, 1000, 1001, 1002})), "0-3, 1000-1002");
}

TEST(FailurePageTest, ARoundThatStoodStill) {
  JobReport report{.round = Round(3)};
  Failure failure{
      .rank = Rank(5), .local_rank = LocalRank(1), .host = "node2", .exit = Hung{"rank 5 is stopped", true}};
  failure.cause = "round 3 has made no progress for 30 s: rank 5 is stopped";
  report.groups = {{.first = failure, .count = 1, .ranks = {Rank(5)}}};
  EXPECT_THAT(
      FormatFailurePage(report),
      testing::AllOf(testing::HasSubstr("Round 3 ended: it stood still behind rank 5 on node2\n"),
                     testing::HasSubstr("rank 5 (local rank 1) on node2: behind the others, which wait\n"),
                     testing::HasSubstr(failure.cause)));
  EXPECT_THAT(FormatWhatIsNew(report, ""),
              testing::HasSubstr("rank 5 (local rank 1) on node2 has not ended; its round stood still\n"));
  report.groups[0].first.exit = Hung{"", false};
  EXPECT_THAT(FormatFailurePage(report),
              testing::AllOf(testing::HasSubstr("Round 3 ended: it stood still\n"),
                             testing::HasSubstr("no worker is behind the others\n")));
  EXPECT_THAT(FormatWhatIsNew(report, ""), testing::HasSubstr("no worker is behind the others\n"));
}

}  // namespace
}  // namespace ddprun
