#include "launcher/report/failure_report.h"

#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/report/local_host.h"

namespace ddprun {
namespace {

// 2026-11-21 08:14:52 UTC.
constexpr int64_t kTime = 1795248892;

WorkerEnd End(int rank, ExitInfo exit, int64_t noticed = kTime) {
  return {.rank = Rank(rank),
          .local_rank = LocalRank(rank),
          .host = "node1.example",
          .pid = 22798 + rank,
          .exit = std::move(exit),
          .noticed = noticed};
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path) << text;
  return path;
}

// With the error file at `path`.
FailureRecord RecordOf(const WorkerEnd& end, const std::string& path) {
  FailureRecord record = MakeFailureRecord(end);
  if (auto error = ReadErrorFile(path)) AddWorkerError(*std::move(error), path, record);
  return record;
}

TEST(FailureReportTest, OneEndedByUsAndOneCause) {
  const std::vector<FailureRecord> failures = {MakeFailureRecord(End(1, Exited{3})),
                                               MakeFailureRecord(End(0, Signaled{SIGTERM, false}))};
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

TEST(FailureReportTest, AloneAndNarrow) {
  FailureRecord record = MakeFailureRecord(End(0, Signaled{SIGKILL, true}));
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

TEST(FailureReportTest, AnErrorFileGivesTracebackAndTime) {
  const std::string path = WriteFile(
      "e.json",
      absl::StrCat(
          R"({"message": {"message": "m", "extraInfo": {"py_callstack": "Traceback:\n  at é\nError", )",
          R"("timestamp": ")", kTime - 1, "\"}}}"));
  const std::vector<FailureRecord> failures = {MakeFailureRecord(End(0, Exited{1})),
                                               RecordOf(End(1, Exited{1}), path)};
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

// As torchrun: only a traceback is indented, and an empty message is none.
TEST(FailureReportTest, APlainMessageIsShownAsItStands) {
  const std::string path = WriteFile("plain.json", R"({"message": "one\ntwo", "timestamp": 17})");
  EXPECT_EQ(RecordOf(End(0, Exited{1}), path).message, "one\ntwo");
  const FailureRecord empty = RecordOf(End(0, Signaled{SIGKILL, false}),
                                       WriteFile("empty.json", R"({"message": "", "timestamp": 17})"));
  EXPECT_EQ(empty.message, "Signal 9 (SIGKILL) received by PID 22798");
  EXPECT_EQ(empty.timestamp, 17);
}

TEST(FailureReportTest, RulesCountLettersNotBytes) {
  FailureRecord record = MakeFailureRecord(End(0, Exited{1}));
  record.message = "ééééééééééééééééééééééééééééé";  // 29 letters behind 14
  const std::string text = FormatFailureReport("t", {record}, absl::UTCTimeZone());
  EXPECT_EQ(text.substr(1, text.find('\n', 1) - 1), std::string(43, '='));
}

TEST(FailureReportTest, ACorruptErrorFileCountsAsNone) {
  const std::string path = WriteFile("torn.json", R"({"message": {"mess)");
  const FailureRecord record = RecordOf(End(0, Exited{1}), path);
  EXPECT_EQ(record.error_file, "");
  EXPECT_EQ(record.timestamp, kTime);
}

TEST(FailureReportTest, TheRootCauseIsTheEarliestAndOfEqualOnesTheFirstNoticed) {
  const auto records = [](const std::vector<int64_t>& times) {
    std::vector<FailureRecord> all;
    for (const int64_t t : times) all.push_back(MakeFailureRecord(End(0, Exited{1}, t)));
    return all;
  };
  EXPECT_EQ(RootCause(records({5})), 0u);
  EXPECT_EQ(RootCause(records({5, 5, 5})), 0u);
  EXPECT_EQ(RootCause(records({5, 4, 4})), 1u);
  EXPECT_EQ(RootCause(records({6, 5, 4})), 2u);
}

TEST(FailureReportTest, AWorkerThatNeverStartedSaysWhy) {
  WorkerEnd end = End(0, NeverStarted{absl::NotFoundError("cannot start ./x: no such file")});
  end.pid = 0;
  const std::string text = FormatFailureReport("x", {MakeFailureRecord(end)}, absl::UTCTimeZone());
  EXPECT_NE(text.find("  exitcode  : 1 (pid: 0) \n  error_file: <N/A>\n"
                      "  traceback : cannot start ./x: no such file\n"),
            std::string::npos)
      << text;
}

TEST(FailureReportTest, LastLinesOfStderr) {
  FailureRecord record = MakeFailureRecord(End(2, Exited{1}));
  EXPECT_EQ(FormatStderrTail({record}, 5), "");
  record.stderr_tail = "one\ntwo\nthree\n";
  EXPECT_EQ(FormatStderrTail({record}, 2),
            "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example):\n  two\n  three\n");
  EXPECT_EQ(FormatStderrTail({record}, 9),
            "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example):\n  one\n  two\n  three\n");
  FailureRecord killed = MakeFailureRecord(End(2, Signaled{SIGKILL, false}));
  killed.stderr_tail = "one\n";
  EXPECT_EQ(
      FormatStderrTail({killed}, 2),
      "Last lines of stderr of rank 2 (local_rank: 2, host: node1.example) before SIGKILL, not necessarily "
      "the cause:\n  one\n");
}

TEST(LocalHostTest, HasAName) {
  EXPECT_FALSE(LocalHostName().empty());
  EXPECT_EQ(LocalHostName().find(' '), std::string::npos);
}

}  // namespace
}  // namespace ddprun
