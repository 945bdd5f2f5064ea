#include "launcher/report/failure_report.h"

#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

// 2026-11-21 08:14:52 UTC.
constexpr int64_t kTime = 1795248892;

// Returns the record of a worker that ran for an hour. The end of the worker was noticed `after_ms`
// milliseconds after kTime.
FailureRecord Record(int rank, ExitInfo exit, int after_ms = 0) {
  return MakeFailureRecord({.rank = Rank(rank),
                            .local_rank = LocalRank(rank),
                            .host = "node1.example",
                            .pid = 22798 + rank,
                            .exit = std::move(exit),
                            .failed_at = TimePoint(seconds(5000) + milliseconds(after_ms)),
                            .uptime = seconds(3600)},
                           absl::FromUnixSeconds(kTime) + absl::Milliseconds(after_ms));
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path) << text;
  return path;
}

// Adds the error file at `path` if it is valid.
FailureRecord WithErrorFile(const std::string& path, FailureRecord record) {
  if (auto error = ReadErrorFile(path)) AddWorkerError(*std::move(error), path, record);
  return record;
}

// Adds an error file whose time is `after_s` seconds after kTime.
FailureRecord WithErrorTime(int64_t after_s, FailureRecord record) {
  AddWorkerError({.text = "x", .timestamp = kTime + after_s, .json = ""}, "e.json", record);
  return record;
}

FailureRecord WithOrigin(FailureOrigin origin, FailureRecord record) {
  record.failure.origin = origin;
  return record;
}

TEST(FailureReportTest, FormatsARootCauseAndAStoppedWorker) {
  const std::vector<FailureRecord> failures = {Record(1, Exited{3}), Record(0, Signaled{SIGTERM, false}, 1)};
  EXPECT_EQ(FormatFailureReport("train.py", failures, absl::UTCTimeZone()), R"(
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_08:14:52
  host      : node1.example
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 22798)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 22798
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_08:14:52
  host      : node1.example
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 22799) 
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
)");
}

TEST(FailureReportTest, FormatsASingleNarrowFailure) {
  FailureRecord record = Record(0, Signaled{SIGKILL, true});
  record.message = "x";
  EXPECT_EQ(FormatFailureReport("t", {record}, absl::FixedTimeZone(3600)), R"(
========================================
t FAILED
----------------------------------------
Failures:
  <NO_OTHER_FAILURES>
----------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_09:14:52
  host      : node1.example
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 22798)  (SIGKILL)
  error_file: <N/A>
  traceback : x
========================================
)");
}

TEST(FailureReportTest, ShowsTheTracebackAndTimeFromTheErrorFile) {
  const std::string path = WriteFile(
      "e.json",
      absl::StrCat(
          R"({"message": {"message": "m", "extraInfo": {"py_callstack": "Traceback:\n  at é\nError", )",
          R"("timestamp": ")", kTime - 1, "\"}}}"));
  const std::vector<FailureRecord> failures = {Record(0, Exited{1}, 500),
                                               WithErrorFile(path, Record(1, Exited{1}, 500))};
  EXPECT_EQ(RootCause(failures), 1u);
  const std::string text = FormatFailureReport("t", failures, absl::UTCTimeZone());
  const std::string want = absl::StrCat(R"(
Root Cause (first observed failure):
[1]:
  time      : 2026-11-21_08:14:51
  host      : node1.example
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 22799) 
  error_file: )",
                                        path, R"(
  traceback : Traceback:
    at é
  Error
============================================================
)");
  EXPECT_EQ(text.substr(text.find("\nRoot")), want);
}

// As in torchrun, only a traceback is indented, and an empty message is ignored.
TEST(FailureReportTest, ShowsAPlainMessageUnindented) {
  const std::string path = WriteFile("plain.json", R"({"message": "one\ntwo", "timestamp": 17})");
  EXPECT_EQ(WithErrorFile(path, Record(0, Exited{1})).message, "one\ntwo");
  const FailureRecord empty = WithErrorFile(WriteFile("empty.json", R"({"message": "", "timestamp": 17})"),
                                            Record(0, Signaled{SIGKILL, false}));
  EXPECT_EQ(empty.message, "Signal 9 (SIGKILL) received by PID 22798");
  EXPECT_EQ(empty.timestamp, 17);
}

TEST(FailureReportTest, RuleWidthIsInCodePointsNotBytes) {
  FailureRecord record = Record(0, Exited{1});
  record.message = "ééééééééééééééééééééééééééééé";  // 29 code points; the label has 14
  const std::string text = FormatFailureReport("t", {record}, absl::UTCTimeZone());
  EXPECT_EQ(text.substr(1, text.find('\n', 1) - 1), std::string(43, '='));
}

TEST(FailureReportTest, IgnoresACorruptErrorFile) {
  const std::string path = WriteFile("torn.json", R"({"message": {"mess)");
  const FailureRecord record = WithErrorFile(path, Record(0, Exited{1}));
  EXPECT_EQ(record.error_file, "");
  EXPECT_EQ(record.timestamp, kTime);
}

TEST(FailureReportTest, TheRootCauseIsTheEarliestIndependentFailure) {
  const auto exits = [](const std::vector<int>& times) {
    std::vector<FailureRecord> all;
    for (const int t : times) all.push_back(Record(0, Exited{1}, t));
    return all;
  };
  EXPECT_EQ(RootCause(exits({5})), 0u);
  EXPECT_EQ(RootCause(exits({5, 5, 5})), 0u);
  EXPECT_EQ(RootCause(exits({5, 4, 4})), 1u);
  EXPECT_EQ(RootCause(exits({6, 5, 4})), 2u);
  EXPECT_EQ(RootCause({WithOrigin(FailureOrigin::kStopped, Record(0, Exited{1}, 5)),
                       WithOrigin(FailureOrigin::kFollowsAnother, Record(1, Exited{1}, 6)),
                       Record(2, Exited{1}, 7)}),
            2u);
}

// Each list of failures is in the order in which the ends were noticed.
TEST(FailureReportTest, AnErrorFileMovesTheFailureBeforeTheExit) {
  const FailureRecord slow = WithErrorTime(0, Record(1, Exited{1}, 8000));
  EXPECT_EQ(slow.failure.failed_at, TimePoint(seconds(5001)))
      << "failed_at must be the end of the second in the error file";
  EXPECT_EQ(RootCause({Record(0, Signaled{SIGSEGV, false}, 1500), slow}), 1u);
  EXPECT_EQ(RootCause({Record(0, Signaled{SIGSEGV, false}, 300), slow}), 0u)
      << "a difference of less than one second must not change the order";
}

TEST(FailureReportTest, AnErrorFileFromTheSameSecondDoesNotChangeTheOrder) {
  EXPECT_EQ(
      RootCause({Record(0, Signaled{SIGKILL, false}, 700), WithErrorTime(0, Record(1, Exited{1}, 710))}), 0u);
  EXPECT_EQ(
      RootCause({WithErrorTime(0, Record(1, Exited{1}, 710)), Record(0, Signaled{SIGKILL, false}, 720)}), 0u);
}

TEST(FailureReportTest, IgnoresATimeOutsideTheWorkersLifetime) {
  const TimePoint noticed = Record(0, Exited{1}).failure.failed_at;
  for (const int64_t after_s : {-kTime, int64_t{-3602}, int64_t{1}, int64_t{1} << 60, -(int64_t{1} << 60)}) {
    EXPECT_EQ(WithErrorTime(after_s, Record(0, Exited{1})).failure.failed_at, noticed) << after_s;
  }
  EXPECT_EQ(WithErrorTime(-3601, Record(0, Exited{1})).failure.failed_at, noticed - seconds(3600));
}

TEST(FailureReportTest, ShowsWhyAWorkerNeverStarted) {
  FailureRecord record = Record(0, NeverStarted{absl::NotFoundError("cannot start ./x: no such file")});
  record.failure.pid = 0;
  const std::string text = FormatFailureReport("x", {record}, absl::UTCTimeZone());
  EXPECT_NE(text.find("  exitcode  : 1 (pid: 0) \n  error_file: <N/A>\n"
                      "  traceback : cannot start ./x: no such file\n"),
            std::string::npos)
      << text;
}

TEST(FailureReportTest, FormatsTheLastLinesOfStderr) {
  FailureRecord record = Record(2, Exited{1});
  EXPECT_EQ(FormatStderrTail({record}, 5), "");
  record.failure.stderr_tail = "one\ntwo\nthree\n";
  EXPECT_EQ(FormatStderrTail({record}, 2),
            "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example):\n  two\n  three\n");
  EXPECT_EQ(FormatStderrTail({record}, 9),
            "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example):\n  one\n  two\n  three\n");
  FailureRecord killed = Record(2, Signaled{SIGKILL, false});
  killed.failure.stderr_tail = "one\n";
  EXPECT_EQ(
      FormatStderrTail({killed}, 2),
      "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example) before SIGKILL, not necessarily "
      "the cause:\n  one\n");
  record.failure.tail_has_stdout = true;
  EXPECT_EQ(FormatStderrTail({record}, 1),
            "Last lines of output of rank 2 (local_rank: 2, host: node1.example):\n  three\n");
}

}  // namespace
}  // namespace ddprun
