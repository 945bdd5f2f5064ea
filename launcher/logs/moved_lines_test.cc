// Tests that workers' lines are moved, without a copy, to a console that is a pipe.
#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/logs/output_tail.h"
#include "launcher/logs/testing/output_fixture.h"
#include "launcher/logs/worker_stream.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns numbered lines of different lengths that begin with `name`, at least `bytes` bytes in total.
std::string Lines(absl::string_view name, size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    absl::StrAppend(&text, name, " ", i, " ", std::string(i % 97, 'x'), "\n");
  }
  return text;
}

class MovedLinesTest : public OutputFixture {
 protected:
  std::unique_ptr<WorkerOutput> OpenShared() {
    WorkerOutput::Plan plan = Plan(kNone, kNone);
    plan.alone = false;
    return std::make_unique<WorkerOutput>(*console_, disk_, plan, WorkerOutput::OpenFiles(plan));
  }
  // Opens a console that uses one pipe for stdout and stderr.
  void OpenMergedConsole() {
    same_.Reset(fcntl(console_pipes_[0].writer.get(), F_DUPFD_CLOEXEC, 3));
    OpenConsole(console_pipes_[0].writer.get(), same_.get());
  }
  // Writes as much of `text`, beginning at offset `at`, as fits into the worker's pipe. Advances `at`. Most
  // writes end mid-line.
  static void WriteSome(const UniqueFd& worker, const std::string& text, size_t& at) {
    ssize_t n = 1;
    while (n > 0 && at < text.size()) {
      n = write(worker.get(), text.data() + at, std::min<size_t>(text.size() - at, 8191));
      if (n > 0) at += static_cast<size_t>(n);
    }
  }
  // Alternates between calling `done` and running the io_context until `done` returns true. Returns false if
  // this takes longer than kPatience.
  bool Repeat(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      RunAll();
    }
    return true;
  }
  // Writes some lines and then `text`, which must exceed the room in the console's pipe, to the worker's
  // stdout. Waits until a move is pending. Returns the worker's stdout.
  UniqueFd StartMove(WorkerOutput& output, const std::string& text) {
    fcntl(output.stdout_fd(), F_SETPIPE_SZ, 1 << 20);
    UniqueFd worker = TakeStdout(output);
    const std::string first = Lines("first", 40 << 10);
    size_t at = 0;
    WriteSome(worker, first, at);
    std::string shown;
    EXPECT_TRUE(Repeat([&] { return (shown += Shown(0)).size() == first.size(); }));
    at = 0;
    WriteSome(worker, text, at);
    EXPECT_EQ(at, text.size());
    const int64_t moved = console_->out().MovedForTest();
    EXPECT_TRUE(Repeat([&] { return console_->out().MovedForTest() > moved; }));
    EXPECT_TRUE(console_->out().full());
    return worker;
  }

  // Reads the console's stdout in small steps until `moved` bytes have been moved to it in total. Returns the
  // bytes read.
  std::string ReadUntilMoved(int64_t moved) {
    std::string shown;
    EXPECT_TRUE(Repeat([&] {
      char buffer[1001];
      const ssize_t n = read(console_pipes_[0].reader.get(), buffer, sizeof buffer);
      if (n > 0) shown.append(buffer, n);
      RunAll();
      return console_->out().MovedForTest() >= moved;
    }));
    return shown;
  }
  // Runs the io_context for longer than kHoldLimit.
  void RunPastTheHoldLimit() {
    boost::asio::steady_timer timer(io_, 2 * WorkerStream::kHoldLimit);
    bool expired = false;
    timer.async_wait([&](const boost::system::error_code&) { expired = true; });
    EXPECT_TRUE(RunUntil([&] { return expired; }));
  }

  UniqueFd same_;
};

TEST_F(MovedLinesTest, LinesOfWorkersAndLauncherAreWholeAndInOrder) {
  OpenMergedConsole();
  std::vector<std::unique_ptr<WorkerOutput>> outputs;
  std::vector<UniqueFd> workers;
  std::vector<std::string> texts;
  std::vector<size_t> at(3);
  for (const char* name : {"a", "b", "c"}) {
    outputs.push_back(OpenShared());
    workers.push_back(TakeStdout(*outputs.back()));
    texts.push_back(Lines(name, 2 << 20));
  }
  std::string shown, launcher;
  ASSERT_TRUE(Repeat([&] {
    bool all_written = true;
    for (size_t i = 0; i < workers.size(); ++i) {
      WriteSome(workers[i], texts[i], at[i]);
      all_written = all_written && at[i] == texts[i].size();
    }
    if (launcher.size() < 1000) {
      absl::StrAppend(&launcher, "launcher ", launcher.size(), "\n");
      console_->err().Write(launcher.substr(launcher.rfind("launcher")));
    }
    char buffer[50'001];
    const ssize_t n = read(console_pipes_[0].reader.get(), buffer, sizeof buffer);
    if (n > 0) shown.append(buffer, n);
    return all_written;
  }));
  for (size_t i = 0; i < workers.size(); ++i) {
    workers[i].Reset();
    ASSERT_TRUE(DrainReading(*outputs[i], shown));
  }
  shown += ShownToTheEnd();
  EXPECT_GT(console_->out().MovedForTest(), 1 << 20);
  std::vector<std::string> got(4);
  for (const absl::string_view line : absl::StrSplit(shown, '\n', absl::SkipEmpty())) {
    const size_t who = line[0] == 'l' ? 3 : line[0] - 'a';
    ASSERT_LT(who, 4u) << line;
    absl::StrAppend(&got[who], line, "\n");
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_TRUE(got[i] == texts[i]) << i << ": " << got[i].size() << " bytes of " << texts[i].size();
    const std::string tail = outputs[i]->StderrTail().value();
    EXPECT_GT(tail.size(), kTailBytes - 200);
    EXPECT_TRUE(absl::EndsWith(texts[i], tail)) << tail.substr(0, 200);
  }
  EXPECT_EQ(got[3], launcher);
}

TEST_F(MovedLinesTest, OtherWritersWaitForTheEndOfAMove) {
  const auto output = OpenShared();
  const std::string text = Lines("a", 800 << 10);
  UniqueFd worker = StartMove(*output, text);
  console_->out().Write("of the launcher\n");
  worker.Reset();
  std::string shown;
  ASSERT_TRUE(DrainReading(*output, shown));
  shown += ShownToTheEnd();
  const size_t launcher = shown.find("of the launcher\n");
  ASSERT_NE(launcher, std::string::npos);
  EXPECT_EQ(shown[launcher - 1], '\n');
  EXPECT_TRUE(shown.erase(launcher, 16) == text) << shown.size() << " bytes of " << text.size();
}

TEST_F(MovedLinesTest, ADrainThatTimesOutLosesNothingInThePipe) {
  const auto output = OpenShared();
  const std::string text = Lines("a", 800 << 10) + "half";
  UniqueFd worker = StartMove(*output, text);
  EXPECT_TRUE(Drain(*output, milliseconds(20)));
  EXPECT_EQ(write(worker.get(), "x", 1), -1) << "the read end of the worker's pipe must be closed";
  const std::string shown = ShownToTheEnd();
  EXPECT_TRUE(shown == text) << shown.size() << " bytes of " << text.size();
}

// `read_before` varies the offset at which the move is interrupted: at the end of a line or mid-line.
TEST_F(MovedLinesTest, ADrainThatTimesOutSplitsNoLine) {
  for (const size_t read_before : {0, 50'001, 50'047}) {
    SCOPED_TRACE(read_before);
    const auto output = OpenShared();
    const std::string text = Lines("a", 800 << 10);
    const UniqueFd worker = StartMove(*output, text);
    std::string shown;
    if (read_before > 0) {
      shown = ReadUntilMoved(console_->out().MovedForTest() + static_cast<int64_t>(read_before));
    }
    ASSERT_TRUE(console_->out().full()) << "a move must be pending";
    console_->out().Write("of the launcher\n");
    EXPECT_TRUE(Drain(*output, milliseconds(20)));
    shown += ShownToTheEnd();
    const size_t launcher = shown.find("of the launcher\n");
    ASSERT_NE(launcher, std::string::npos);
    EXPECT_TRUE(shown.erase(launcher, 16) == text) << shown.size() << " bytes of " << text.size();
    EXPECT_EQ(text[launcher - 1], '\n');
  }
}

TEST_F(MovedLinesTest, DestroyingTheOutputLeavesWholeLines) {
  auto output = OpenShared();
  const std::string text = Lines("a", 800 << 10);
  const UniqueFd worker = StartMove(*output, text);
  console_->out().Write("of the launcher\n");
  output.reset();
  console_->out().Write("more\n");
  const std::string shown = ShownToTheEnd();
  const size_t launcher = shown.find("of the launcher\nmore\n");
  ASSERT_NE(launcher, std::string::npos);
  EXPECT_TRUE(shown.substr(0, launcher) == text.substr(0, launcher)) << launcher;
  EXPECT_EQ(text[launcher - 1], '\n');
}

TEST_F(MovedLinesTest, TailHasEachLineOnceAfterAnInterruptedMove) {
  OpenMergedConsole();
  const auto output = OpenShared();
  const std::string text = Lines("a", 700 << 10);
  const UniqueFd worker = StartMove(*output, text);
  ReadUntilMoved(static_cast<int64_t>(text.size() - kTailBytes / 2));
  ASSERT_TRUE(console_->out().full()) << "a move must be pending";
  EXPECT_TRUE(Drain(*output, milliseconds(20)));
  const std::string tail = output->StderrTail().value();
  EXPECT_GT(tail.size(), kTailBytes - 200);
  EXPECT_TRUE(absl::EndsWith(text, tail)) << tail.substr(0, 200);
}

TEST_F(MovedLinesTest, TailHasEachLineOnceAfterTheReaderCloses) {
  OpenMergedConsole();
  const auto output = OpenShared();
  const std::string text = Lines("a", 700 << 10);
  UniqueFd worker = StartMove(*output, text);
  ReadUntilMoved(static_cast<int64_t>(text.size() - kTailBytes / 2));
  ASSERT_TRUE(console_->out().full()) << "a move must be pending";
  console_pipes_[0].reader.Reset();
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  const std::string tail = output->StderrTail().value();
  EXPECT_GT(tail.size(), kTailBytes - 200);
  EXPECT_TRUE(absl::EndsWith(text, tail)) << tail.substr(0, 200);
}

TEST_F(MovedLinesTest, AWorkerThatReadsItsOwnPipeEndsItsMove) {
  const auto output = OpenShared();
  const UniqueFd worker = StartMove(*output, Lines("a", 800 << 10));
  const UniqueFd other_reader(
      open(absl::StrCat("/proc/self/fd/", worker.get()).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(other_reader);
  char buffer[65536];
  while (read(other_reader.get(), buffer, sizeof buffer) > 0) {
  }
  EXPECT_TRUE(RunUntil([&] {
    Shown(0);
    return console_->out().idle();
  }));
}

// The console's reader is slow, so the end of a line remains in the worker's pipe.
TEST_F(MovedLinesTest, ALineWhoseEndIsInThePipeIsNotSplit) {
  const auto output = OpenShared();
  fcntl(output->stdout_fd(), F_SETPIPE_SZ, 1 << 20);
  UniqueFd worker = TakeStdout(*output);
  std::string text;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&text, std::string(29'000, 'a'), "\n");
  // Part 1 is read immediately and ends mid-line. Part 2 exceeds the room in the console's pipe. Part 3
  // cannot be moved until part 2 has been read.
  size_t at = 0;
  for (const size_t end : {size_t{100'001}, size_t{400'001}, text.size()}) {
    WriteSome(worker, text.substr(0, end), at);
    ASSERT_EQ(at, end);
    RunAll();
  }
  ASSERT_FALSE(console_->out().idle());
  RunPastTheHoldLimit();
  console_->out().Write("of the launcher\n");
  worker.Reset();
  std::string shown;
  ASSERT_TRUE(DrainReading(*output, shown));
  shown += ShownToTheEnd();
  const size_t launcher = shown.find("of the launcher\n");
  ASSERT_NE(launcher, std::string::npos);
  EXPECT_TRUE(shown.erase(launcher, 16) == text) << shown.size() << " bytes of " << text.size();
  EXPECT_EQ(text[launcher - 1], '\n');
}

TEST_F(MovedLinesTest, AReaderThatClosesDoesNotBlockTheWorker) {
  const auto output = OpenShared();
  const std::string text = Lines("a", 800 << 10);
  UniqueFd worker = StartMove(*output, text);
  console_pipes_[0].reader.Reset();
  size_t at = 0;
  ASSERT_TRUE(Repeat([&] {
    WriteSome(worker, text, at);
    return at == text.size();
  }));
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("stdout")));
}

TEST_F(MovedLinesTest, LinesLongerThanAPipePeekAreWhole) {
  const auto one = OpenShared();
  const auto other = OpenShared();
  for (const auto* output : {one.get(), other.get()}) fcntl(output->stdout_fd(), F_SETPIPE_SZ, 1 << 20);
  UniqueFd workers[] = {TakeStdout(*one), TakeStdout(*other)};
  const std::string texts[] = {std::string(300'000, 'a') + "\n", std::string(300'000, 'b') + "\n"};
  // Each line is completely in its pipe before its first byte is read, so kHoldLimit does not apply.
  for (const int i : {0, 1}) {
    size_t at = 0;
    WriteSome(workers[i], texts[i], at);
    ASSERT_EQ(at, texts[i].size());
  }
  std::string shown;
  ASSERT_TRUE(Repeat([&] {
    shown += Shown(0);
    return shown.size() == 600'002;
  }));
  EXPECT_TRUE(shown == texts[0] + texts[1] || shown == texts[1] + texts[0]);
}

}  // namespace
}  // namespace ddprun
