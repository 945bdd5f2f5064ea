// Tests streams that pass through the agent: slow consoles, unterminated lines, size limits and filters.
#include "launcher/logs/worker_stream.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/logs/testing/output_fixture.h"

namespace ddprun {
namespace {

// Writes numbered lines of 4 KiB as long as they fit into the pipe of `worker`. The pipe has room either for
// a whole line or for no byte at all, so no write is partial.
void WriteLines(const UniqueFd& worker, int& next, std::string& sent) {
  for (;; ++next) {
    std::string line = absl::StrCat(next, " ");
    line.resize(4095, 'x');
    line += '\n';
    if (write(worker.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) return;
    sent += line;
  }
}

std::string Prefixed(absl::string_view prefix, absl::string_view text) {
  std::string prefixed;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&prefixed, prefix, line, "\n");
  }
  return prefixed;
}

class WorkerStreamTest : public OutputFixture {
 protected:
  // Writes to `worker` until a write would block or at least `limit` bytes are written. Does not read the
  // console. Returns the bytes written.
  std::string WriteUntilItBlocks(const UniqueFd& worker, size_t limit) {
    std::string sent;
    int next = 0;
    size_t before;
    do {
      before = sent.size();
      WriteLines(worker, next, sent);
      RunAll();
    } while (sent.size() > before && sent.size() < limit);
    return sent;
  }
};

TEST_F(WorkerStreamTest, AnUnreadConsoleDoesNotBlockAWorkerWithAFile) {
  const auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  const std::string sent = WriteUntilItBlocks(worker, 16 << 20);
  EXPECT_GE(sent.size(), 16u << 20);
  RunAll();
  EXPECT_EQ(Contents(files_.stdout_log), sent);
  // The drain does not wait for the reader, and a late reader gets all output.
  Print(worker.get(), "the end");
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log), sent + "the end");
  const std::string shown = ShownToTheEnd();
  EXPECT_TRUE(shown == Prefixed("[default0]:", sent + "the end\n"))
      << shown.size() << " bytes shown of " << sent.size();
}

TEST_F(WorkerStreamTest, ALateReaderGetsEverythingDuringTheNextStart) {
  auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  const std::string sent = WriteUntilItBlocks(worker, 8 << 20);
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  output.reset();
  files_.stdout_log += ".next";
  output = Open(kNone, kOut);
  Print(output->stdout_fd(), "next\n");
  EXPECT_TRUE(Drain(*output));
  std::string shown = ShownToTheEnd();
  const std::string next = "[default0]:next\n";
  const size_t at = shown.find(next);
  ASSERT_NE(at, std::string::npos);
  shown.erase(at, next.size());
  EXPECT_TRUE(shown == Prefixed("[default0]:", sent)) << shown.size() << " bytes shown of " << sent.size();
}

TEST_F(WorkerStreamTest, StreamsTakeTurnsOnASlowConsoleAndKeepTheirOrder) {
  std::map<int, std::string> sent;
  std::map<int, UniqueFd> workers;
  std::map<int, std::unique_ptr<WorkerOutput>> outputs;
  for (const int rank : {0, 1}) {
    WorkerOutput::Plan plan = Plan(kNone, kOut);
    plan.files.stdout_log += absl::StrCat(rank);
    plan.prefix = absl::StrCat(rank, ":");
    outputs[rank] = std::make_unique<WorkerOutput>(*console_, disk_, plan, WorkerOutput::OpenFiles(plan));
    workers[rank] = TakeStdout(*outputs[rank]);
    sent[rank] = WriteUntilItBlocks(workers[rank], 8 << 20);
  }
  workers.clear();
  EXPECT_TRUE(Drain(*outputs[0]));
  EXPECT_TRUE(Drain(*outputs[1]));
  std::map<char, std::string> shown;
  const std::string all = ShownToTheEnd();
  size_t first_of_one = 0;
  for (const absl::string_view line : absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&shown[line[0]], line.substr(2), "\n");
    if (line[0] == '1' && first_of_one == 0) first_of_one = static_cast<size_t>(line.data() - all.data());
  }
  EXPECT_TRUE(shown['0'] == sent[0]);
  EXPECT_TRUE(shown['1'] == sent[1]);
  EXPECT_LT(first_of_one, 4u << 20) << "the second stream must not wait for the end of the first";
}

TEST_F(WorkerStreamTest, WithoutAFileTheWorkerBlocksAndLosesNothing) {
  files_ = {};
  const auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  const std::string sent = WriteUntilItBlocks(worker, 16 << 20);
  EXPECT_LT(sent.size(), 4u << 20);
  EXPECT_EQ(write(worker.get(), "x", 1), -1);
  worker.Reset();
  std::string shown;
  ASSERT_TRUE(DrainReading(*output, shown));
  shown += ShownToTheEnd();
  EXPECT_TRUE(shown == Prefixed("[default0]:", sent)) << shown.size() << " bytes shown of " << sent.size();
}

TEST_F(WorkerStreamTest, AtTheSizeLimitTheWorkerBlocksAndTheConsoleGetsEverything) {
  WorkerOutput::Plan plan = Plan(kNone, kOut);
  plan.max_log_bytes = 4 << 20;
  WorkerOutput output = Open(plan);
  UniqueFd worker = TakeStdout(output);
  const std::string sent = WriteUntilItBlocks(worker, 16 << 20);
  EXPECT_LT(sent.size(), 6u << 20);
  EXPECT_GT(sent.size(), 1u << 20);
  worker.Reset();
  std::string shown;
  ASSERT_TRUE(DrainReading(output, shown));
  shown += ShownToTheEnd();
  EXPECT_TRUE(shown == Prefixed("[default0]:", sent)) << shown.size() << " bytes shown of " << sent.size();
}

// The file gets all bytes in the pipe, and a line on the console states how many bytes are not shown.
TEST_F(WorkerStreamTest, ADrainThatTimesOutSavesOutputAndReportsBytesNotShown) {
  WorkerOutput::Plan plan = Plan(kNone, kOut);
  plan.max_log_bytes = 4 << 20;
  WorkerOutput output = Open(plan);
  const UniqueFd held_open = TakeStdout(output);
  const std::string sent = WriteUntilItBlocks(held_open, 16 << 20);
  EXPECT_TRUE(Drain(output, milliseconds(20)));
  RunAll();
  EXPECT_TRUE(absl::EndsWith(sent, Contents(files_.stdout_log)));
  EXPECT_GT(Contents(files_.stdout_log).size() + Contents(files_.stdout_log + ".1").size(), 1u << 20);
  EXPECT_TRUE(absl::StrContains(ShownToTheEnd(), " bytes are not shown here; see the log file]\n"));
}

TEST_F(WorkerStreamTest, StaysWithinTheSizeLimitWhileAWorkerWritesAtFullSpeed) {
  for (const Streams tee : {kNone, kOut}) {
    WorkerOutput::Plan plan = Plan(kOut, tee);
    plan.max_log_bytes = 1 << 20;
    WorkerOutput output = Open(plan);
    UniqueFd worker = TakeStdout(output);
    std::string sent;
    std::string shown;
    int next = 0;
    uintmax_t most = 0;
    while (sent.size() < 8u << 20) {
      WriteLines(worker, next, sent);
      RunAll();
      shown += Shown(0);
      std::error_code ignored;
      const auto size = [&](const std::string& path) {
        return std::filesystem::exists(path) ? std::filesystem::file_size(path, ignored) : 0;
      };
      most = std::max(most, size(files_.stdout_log) + size(files_.stdout_log + ".1"));
    }
    EXPECT_LE(most, 1u << 20);
    worker.Reset();
    ASSERT_TRUE(DrainReading(output, shown));
    shown += ShownToTheEnd();
    const std::string on_disk = Contents(files_.stdout_log + ".1") + Contents(files_.stdout_log);
    EXPECT_TRUE(absl::EndsWith(sent, on_disk));
    EXPECT_GT(on_disk.size(), 500u << 10);
    EXPECT_EQ(on_disk.size() % 4096, 0u) << "the files must consist of whole lines";
    EXPECT_TRUE(shown == (tee.out ? Prefixed("[default0]:", sent) : "")) << shown.size() << " bytes shown";
  }
}

TEST_F(WorkerStreamTest, KeepsTheTailOfARedirectedStderrWithASizeLimit) {
  WorkerOutput::Plan plan = Plan(kErr, kNone);
  plan.max_log_bytes = 4096;
  WorkerOutput output = Open(plan);
  Print(output.stderr_fd(), std::string(9999, 'x') + "\nlast\n");
  EXPECT_TRUE(Drain(output));
  EXPECT_EQ(output.StderrTail(), std::string(9999, 'x') + "\nlast\n");
  EXPECT_TRUE(absl::EndsWith(Contents(files_.stderr_log), "\nlast\n"));
  EXPECT_EQ(Shown(0) + Shown(1), "");
}

TEST_F(WorkerStreamTest, WithAPrefixTheRestOfADelayedLineIsANewLine) {
  const auto output = Open(kNone, kOut);
  Print(output->stdout_fd(), "whole\nwaiting for data");
  const auto begin = std::chrono::steady_clock::now();
  std::string shown;
  ASSERT_TRUE(RunUntil([&] {
    shown += Shown(0);
    return absl::StrContains(shown, "data");
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, WorkerStream::kHoldLimit);
  EXPECT_EQ(shown, "[default0]:whole\n[default0]:waiting for data\n");
  Print(output->stdout_fd(), " ... here it is\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]: ... here it is\n");
  EXPECT_EQ(Contents(files_.stdout_log), "whole\nwaiting for data ... here it is\n");
}

// The delayed line is, for example, a prompt. Output of another writer begins on a new line.
TEST_F(WorkerStreamTest, WithoutAPrefixTheRestContinuesADelayedLine) {
  const auto output = Open(kNone, kNone);
  const auto print_and_await = [&](const std::string& text, const std::string& wanted) {
    const auto begin = std::chrono::steady_clock::now();
    Print(output->stderr_fd(), text);
    std::string shown;
    EXPECT_TRUE(RunUntil([&] { return (shown += Shown(1)).size() >= wanted.size(); }));
    EXPECT_EQ(shown, wanted);
    return std::chrono::steady_clock::now() - begin;
  };
  EXPECT_GE(print_and_await("whole\nyes or no? ", "whole\nyes or no? "), Duration::zero());
  EXPECT_LT(print_and_await("yes\n", "yes\n"), WorkerStream::kHoldLimit);
  EXPECT_GE(print_and_await("50%\r60%", "50%\r60%"), Duration::zero());
  console_->err().Write("of the launcher\n");
  EXPECT_EQ(Shown(1), "\nof the launcher\n");
  print_and_await("\r70%\r\n", "\r70%\r\n");
  EXPECT_TRUE(Drain(*output));
}

// The limit also applies to a line that keeps growing, such as a row of dots.
TEST_F(WorkerStreamTest, WithoutAPrefixALineIsHeldBackNoLongerThanTheLimit) {
  const auto output = Open(kNone, kNone);
  const auto begin = std::chrono::steady_clock::now();
  std::string shown;
  while (shown.empty() && std::chrono::steady_clock::now() - begin < kPatience) {
    Print(output->stderr_fd(), ".");
    io_.restart();
    io_.run_for(milliseconds(50));
    shown += Shown(1);
  }
  EXPECT_THAT(shown, testing::MatchesRegex("[.]+"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, WorkerStream::kHoldLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10 * WorkerStream::kHoldLimit);
}

TEST_F(WorkerStreamTest, AStalledDiskBlocksAWorkerOnlyWhenMemoryIsFull) {
  std::promise<void> thaw;
  disk_.Do([thawed = thaw.get_future().share()] { thawed.wait(); });
  const auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  std::string sent, shown;
  int next = 0;
  ASSERT_TRUE(RunUntil([&] {
    const size_t before = sent.size();
    WriteLines(worker, next, sent);
    io_.poll();
    shown += Shown(0);
    return sent.size() == before && disk_.bytes() >= DiskThread::kMaxBytes;
  }));
  EXPECT_GE(sent.size(), DiskThread::kMaxBytes / 2);
  EXPECT_LT(sent.size(), DiskThread::kMaxBytes + (2 << 20)) << "the worker must block";
  EXPECT_EQ(Contents(files_.stdout_log), "");
  EXPECT_TRUE(RunUntil([&] {
    shown += Shown(0);
    return shown.size() >= sent.size() - (1 << 20);
  })) << "the console must not wait for the disk";
  // The drain times out.
  worker.Reset();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(Drain(*output, milliseconds(20)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  thaw.set_value();
  RunAll();
  EXPECT_TRUE(Contents(files_.stdout_log) == sent) << "the file must have all bytes that were sent";
}

TEST_F(WorkerStreamTest, LongAndShortLinesAreWhole) {
  const auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += std::string(1 << 20, static_cast<char>('a' + i)) + "\n";
    for (int j = 0; j < 1000; ++j) absl::StrAppend(&text, j, "\n");
  }
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(worker.get(), text.data() + at, text.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    RunAll();
    shown += Shown(0);
  }
  worker.Reset();
  ASSERT_TRUE(DrainReading(*output, shown));
  shown += ShownToTheEnd();
  EXPECT_TRUE(Contents(files_.stdout_log) == text);
  EXPECT_TRUE(shown == Prefixed("[default0]:", text)) << shown.size() << " bytes shown of " << text.size();
}

TEST_F(WorkerStreamTest, FiltersLinesWhileTheConsoleIsUnread) {
  const std::string path = dir_ + "/filtered_stdout.log";
  WorkerOutput::Plan plan = Plan(kNone, kOut);
  plan.filtered_stdout = OpenFiltered(path, {"7 x"});
  WorkerOutput output = Open(plan);
  UniqueFd worker = TakeStdout(output);
  const std::string sent = WriteUntilItBlocks(worker, 8 << 20);
  RunAll();
  std::string want;
  for (const absl::string_view line : absl::StrSplit(Prefixed("[default0]:", sent), '\n')) {
    if (absl::StrContains(line, "7 x")) absl::StrAppend(&want, line, "\n");
  }
  EXPECT_FALSE(want.empty());
  EXPECT_TRUE(Contents(path) == want) << "matching lines must be written although the console is not read";
  worker.Reset();
  EXPECT_TRUE(Drain(output));
  ShownToTheEnd();
}

TEST_F(WorkerStreamTest, DoesNotFilterHiddenOutput) {
  const std::string path = dir_ + "/filtered_stdout.log";
  WorkerOutput::Plan plan = Plan(kNone, kOut);
  plan.filtered_stdout = OpenFiltered(path, {"x"});
  plan.shown = false;
  WorkerOutput output = Open(plan);
  Print(output.stdout_fd(), "x\n");
  EXPECT_TRUE(Drain(output));
  EXPECT_EQ(Contents(files_.stdout_log), "x\n");
  EXPECT_EQ(Contents(path), "");
}

TEST_F(WorkerStreamTest, FlushContinuesWhileTheReaderMakesProgress) {
  const auto output = Open(kNone, kOut);
  UniqueFd worker = TakeStdout(*output);
  const std::string sent = WriteUntilItBlocks(worker, 4 << 20);
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  // The reader reads at most 64 KiB in each tenth of the limit, so the flush takes longer than the limit.
  constexpr milliseconds kLimit(100);
  bool flushed = false;
  console_->Flush(kLimit, [&] { flushed = true; });
  const auto begin = std::chrono::steady_clock::now();
  std::string shown;
  while (!flushed && std::chrono::steady_clock::now() - begin < kPatience) {
    char buffer[65536];
    const ssize_t n = read(console_pipes_[0].reader.get(), buffer, sizeof buffer);
    if (n > 0) shown.append(buffer, n);
    io_.restart();
    io_.run_for(kLimit / 10);
  }
  shown += Shown(0);
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 3 * kLimit);
  EXPECT_TRUE(shown == Prefixed("[default0]:", sent)) << shown.size() << " bytes shown of " << sent.size();
}

}  // namespace
}  // namespace ddprun
